//! The IETF fields on the wire.
//!
//! | revision of draft-ietf-httpapi-ratelimit-headers | its form | meaning of `t` |
//! |---|---|---|
//! | 10 (September 2025) | `r`, `t`; `q`, `w`, `qu` | the seconds until additional quota is made available |
//! | 11 (May 2026) | the same | the effective window: the seconds within which no more than `r` can be used |
//!
//! The seconds until more units are available are the longest time that fits both meanings, so there is one form.

use super::field_names::{LEFT, MORE_AFTER, QUOTA, UNIT, UNIT_OF_HOLDS, WINDOW};
use crate::decision::Decision;
use crate::policy::{Algorithm, FieldTexts, Limit, Policy, Unit};

/// The separator of the items of a list.
pub(super) const SEPARATOR: &str = ", ";
/// The largest integer of a structured field, which has 15 digits.
pub(super) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The texts about a policy that are the same in all responses.
pub(super) fn texts(policy: &Policy) -> &FieldTexts {
    policy.field_texts(|policy| {
        let name = escaped(policy.name());
        let mut items = String::new();
        for (index, limit) in policy.limits().iter().enumerate() {
            if index > 0 {
                items.push_str(SEPARATOR);
            }
            item(&mut items, &name, policy, index);
            quota(&mut items, limit);
        }
        FieldTexts { name: name.into(), items: items.into() }
    })
}

/// The announcement of a limit: the text in `RateLimit` before the units that are left, and the text before the seconds
/// until there are more, for a limit with such seconds.
pub(super) fn around_numbers(policy: &Policy, index: usize) -> (String, Option<&'static str>) {
    let mut left = String::new();
    item(&mut left, &texts(policy).name, policy, index);
    left.push_str(LEFT);
    (left, has_window(&policy.limits()[index]).then_some(MORE_AFTER))
}

/// The item of the limit that binds: the units that are left, and the seconds until there are more.
pub(super) fn limit_item(out: &mut String, policy: &Policy, decision: &Decision, more: Option<u64>) {
    item(out, &texts(policy).name, policy, decision.binding_index());
    parameter(out, LEFT, decision.remaining());
    if let Some(more) = more {
        parameter(out, MORE_AFTER, more);
    }
}

/// True if time brings its units back. Held units may come back at any moment.
pub(super) fn has_window(limit: &Limit) -> bool {
    limit.algorithm() != Algorithm::Concurrency
}

/// The name of a limit, as [`Policy::limit_name`] has it.
fn item(out: &mut String, escaped_name: &str, policy: &Policy, index: usize) {
    out.push('"');
    out.push_str(escaped_name);
    if policy.limits().len() > 1 {
        parameter(out, "-", index as u64 + 1);
    }
    out.push('"');
}

/// `;q=20;w=60`: the quota of a limit. The window of a bucket is the time until all of `q` is back.
fn quota(out: &mut String, limit: &Limit) {
    parameter(out, QUOTA, limit.capacity());
    let unit = if has_window(limit) { limit.unit().map(Unit::name) } else { Some(UNIT_OF_HOLDS) };
    if let Some(unit) = unit {
        out.extend([UNIT, unit, "\""]);
    }
    if !has_window(limit) {
        return;
    }
    let (period, count) = (u128::from(limit.period().micros()), u128::from(limit.count()));
    let window = if count == 0 { period } else { (period * u128::from(limit.capacity())).div_ceil(count) };
    parameter(out, WINDOW, u64::try_from(window.div_ceil(1_000_000)).unwrap_or(MAX_INTEGER));
}

fn parameter(out: &mut String, name: &str, number: u64) {
    use std::fmt::Write;
    out.push_str(name);
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", number.min(MAX_INTEGER));
}

/// The name of a limit as a client reads it in a field. A body has the same name, so that the two can be compared.
pub(super) fn limit_name(policy: &Policy, index: usize) -> String {
    percent_encoded(&policy.limit_name(index))
}

/// The content of a string of a structured field.
fn escaped(text: &str) -> String {
    percent_encoded(text).replace('\\', r"\\").replace('"', r#"\""#)
}

/// A structured field holds printable ASCII only. Everything else is percent-encoded, and so is `%`, so that percent-decoding
/// returns the name.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..0x20 | 0x7f.. => {
                let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
            byte => out.push(char::from(byte)),
        }
    }
    out
}
