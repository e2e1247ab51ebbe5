//! The fields of a response that announce the limits: the IETF fields, the older `X-RateLimit-*`, and `Retry-After`.
//!
//! The IETF fields are those of draft-ietf-httpapi-ratelimit-headers-10 and -11, which may still change. Only
//! [`policy_item`], [`limit_item`] and the names below depend on their form.

use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use super::{retry_after, seconds};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{Algorithm, Limit, Policy};

const POLICY: &str = "RateLimit-Policy";
const LIMIT: &str = "RateLimit";
const OLD_LIMIT: &str = "X-RateLimit-Limit";
const OLD_REMAINING: &str = "X-RateLimit-Remaining";
const OLD_RESET: &str = "X-RateLimit-Reset";
const RETRY_AFTER: &str = "Retry-After";
/// Every name that [`headers`] may return, for hosts that prepare them.
pub const NAMES: [&str; 6] = [POLICY, LIMIT, OLD_LIMIT, OLD_REMAINING, OLD_RESET, RETRY_AFTER];
/// The largest integer of a structured field, which has 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The fields that announce the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Headers {
    /// The IETF fields and the older ones.
    #[default]
    Both,
    /// `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy,
    /// None of them. `Retry-After` stays, since it belongs to responses with 429 and 503.
    Off,
}

impl Headers {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Both, Self::Ietf, Self::Legacy, Self::Off];

    /// The word in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Ietf => "ietf",
            Self::Legacy => "legacy",
            Self::Off => "off",
        }
    }

    /// The choice that a word means.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

impl FromStr for Headers {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::from_name(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let known = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorKind::ConfigInvalid, format!("headers cannot be {shown:?}: it must be one of {known}"))
        })
    }
}

/// The fields of the response, in order.
///
/// A policy in shadow is not announced, since it limits no request; nor is a policy whose store failed.
#[must_use]
pub fn headers(decision: &Decision, which: Headers) -> Vec<(&'static str, String)> {
    headers_of_all(&[decision], which)
}

/// The same for a response to which several Decisions led, one after the other.
#[must_use]
pub fn headers_of_all(decisions: &[&Decision], which: Headers) -> Vec<(&'static str, String)> {
    let mut fields = Vec::with_capacity(6);
    let announced = announced(decisions);
    if let Some(decision) = binding(&announced) {
        if matches!(which, Headers::Both | Headers::Ietf) {
            fields.push((POLICY, list(&announced, policy_item)));
            fields.push((LIMIT, list(&announced, limit_item)));
        }
        if matches!(which, Headers::Both | Headers::Legacy) {
            fields.push((OLD_LIMIT, decision.limit().to_string()));
            fields.push((OLD_REMAINING, decision.remaining().to_string()));
            fields.push((OLD_RESET, reset_at(decision).to_string()));
        }
    }
    if let Some(refusal) = decisions.iter().find(|decision| !decision.allowed())
        && let Some(wait) = retry_after(refusal)
    {
        fields.push((RETRY_AFTER, wait.to_string()));
    }
    fields
}

/// The parts of the fields that depend on the policy alone, for hosts that write the numbers of a Decision after them
/// themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The policy's name, as an item of both fields.
    pub name: String,
    /// How each limit is announced when it is the one that binds.
    pub limits: Vec<Announced>,
}

/// How one limit is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// Its item of `RateLimit-Policy`, name included.
    pub item: String,
    /// Whether its item of `RateLimit` has a `t`.
    pub has_window: bool,
}

/// How a policy is announced; a policy in shadow is not.
#[must_use]
pub fn announcement(policy: &Policy) -> Option<Announcement> {
    if policy.options().shadow {
        return None;
    }
    let mut name = String::new();
    string(&mut name, policy.name());
    let announced = |limit: &Limit| {
        let mut item = name.clone();
        quota(&mut item, limit);
        Announced { item, has_window: limit.algorithm() != Algorithm::Concurrency }
    };
    let limits = policy.limits().iter().map(announced).collect();
    Some(Announcement { name, limits })
}

/// One Decision for each policy that is announced: of two keys of one policy the one that is nearer to a refusal.
fn announced<'a>(decisions: &[&'a Decision]) -> Vec<&'a Decision> {
    let entries = decisions.iter().flat_map(|decision| match decision.decisions() {
        [] => std::slice::from_ref(*decision),
        entries => entries,
    });
    let mut announced: Vec<&Decision> = Vec::with_capacity(decisions.len());
    for entry in entries.filter(|entry| !entry.in_shadow() && !entry.unavailable()) {
        match announced.iter_mut().find(|known| known.policy() == entry.policy()) {
            Some(known) => *known = binding(&[*known, entry]).unwrap_or(entry),
            None => announced.push(entry),
        }
    }
    announced
}

/// The Decision that binds: the first refusal, else the one with least left in proportion.
fn binding<'a>(decisions: &[&'a Decision]) -> Option<&'a Decision> {
    let refusal = decisions.iter().find(|decision| !decision.allowed());
    refusal.or_else(|| decisions.iter().min_by(|a, b| a.by_what_is_left(b))).copied()
}

/// Unix seconds, rounded up. The moment is stored, so it does not change between calls; it is the end of a block when that is
/// later.
fn reset_at(decision: &Decision) -> u64 {
    let resets = decision.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    let admits = decision.retry_after().map_or(Duration::ZERO, |wait| decision.at() + wait);
    seconds(if decision.allowed() { resets } else { resets.max(admits) })
}

fn list(decisions: &[&Decision], item: fn(&mut String, &Decision)) -> String {
    let mut list = String::with_capacity(32 * decisions.len());
    for decision in decisions {
        if !list.is_empty() {
            list.push_str(", ");
        }
        string(&mut list, decision.policy());
        item(&mut list, decision);
    }
    list
}

/// `;q=20;w=60`: what the limit that binds allows. The window of a bucket is the time in which all of `q` comes back.
fn policy_item(out: &mut String, decision: &Decision) {
    quota(out, decision.binding_limit());
}

fn quota(out: &mut String, limit: &Limit) {
    parameter(out, ";q=", limit.capacity());
    if limit.algorithm() == Algorithm::Concurrency {
        out.push_str(";qu=\"concurrent-requests\"");
        return;
    }
    let (period, count) = (u128::from(limit.period().micros()), u128::from(limit.count()));
    let window = if count == 0 { period } else { (period * u128::from(limit.capacity())).div_ceil(count) };
    parameter(out, ";w=", u64::try_from(window.div_ceil(1_000_000)).unwrap_or(MAX_INTEGER));
}

/// `;r=19;t=3`: what is left, and the seconds until there is more: after a refusal until the same request is admitted, else
/// until the limit is as if unused. There is no `t` when waiting does not help.
fn limit_item(out: &mut String, decision: &Decision) {
    parameter(out, ";r=", decision.remaining());
    if decision.binding_limit().algorithm() == Algorithm::Concurrency {
        return;
    }
    let more = if decision.allowed() { Some(seconds(decision.reset_after())) } else { retry_after(decision) };
    if let Some(more) = more {
        parameter(out, ";t=", more);
    }
}

fn parameter(out: &mut String, name: &str, number: u64) {
    use std::fmt::Write;
    out.push_str(name);
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", number.min(MAX_INTEGER));
}

/// A string of a structured field, which holds printable ASCII only. Everything else is percent-encoded, and so is `%`, so that
/// percent-decoding returns the name.
fn string(out: &mut String, text: &str) {
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'%' | 0..0x20 | 0x7f.. => {
                let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
            byte => out.push(char::from(byte)),
        }
    }
    out.push('"');
}
