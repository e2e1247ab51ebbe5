//! The kinds of value for the options of a policy file, and the errors for wrong values and names.

use super::super::block_for::BlockFor;
use super::super::lease::Lease;
use super::super::networks;
use super::super::notation;
use super::super::options::{OnStoreError, OptionKind, OptionValue};
use super::super::overrides::{KeyOverride, Overrides};
use super::super::priorities::Priorities;
use super::super::suggestion::did_you_mean;
use super::scalar::plain_scalar;
use super::tree::{FileError, Key, Node, Position, Text, Value};
use crate::algorithm::{Period, SECOND};

/// One of the words `names`.
pub(super) fn choice<T>(
    key: &Key,
    node: &Node,
    from_name: impl Fn(&str) -> Option<T>,
    names: &[&str],
) -> Result<T, FileError> {
    let Value::Text(text) = &node.value else {
        return Err(wrong_value(key, node, &format!("one of {}", names.join(", "))));
    };
    from_name(&text.text).ok_or_else(|| {
        let near = if notation::may_be_url(&text.text) {
            String::new()
        } else {
            did_you_mean(&text.text, names.iter().copied())
        };
        node.is_not(&format!("{} must be one of {}", key.shown(), names.join(", ")), &near)
    })
}

/// The value of an option of a policy. `own` reads the limits of an override.
pub(super) fn policy_option(
    kind: OptionKind,
    key: &Key,
    node: &Node,
    own: impl Fn(&Node) -> Result<KeyOverride, FileError>,
) -> Result<OptionValue, FileError> {
    Ok(match kind {
        OptionKind::Flag => OptionValue::Flag(boolean(key, node)?),
        OptionKind::OnStoreError => {
            let names = OnStoreError::ALL.map(OnStoreError::name);
            OptionValue::OnStoreError(choice(key, node, OnStoreError::from_name, &names)?)
        }
        OptionKind::Duration => OptionValue::Duration(duration(key, node)?),
        OptionKind::BlockFor => OptionValue::BlockFor(block_for(key, node)?),
        OptionKind::Count { most, .. } => OptionValue::Count(whole_number(key, node, u64::from(most))? as u32),
        OptionKind::Lease => OptionValue::Lease(lease(key, node)?),
        OptionKind::Priorities => OptionValue::Priorities(priorities(key, node)?),
        OptionKind::Overrides => OptionValue::Overrides(overrides(key, node, own)?),
    })
}

/// `true` or `false`.
fn boolean(key: &Key, node: &Node) -> Result<bool, FileError> {
    match scalar(node) {
        Value::Bool(value) => Ok(value),
        _ => Err(wrong_value(key, node, "true or false")),
    }
}

/// A whole number from 0 to `most`.
pub(super) fn whole_number(key: &Key, node: &Node, most: u64) -> Result<u64, FileError> {
    let wrong = || wrong_value(key, node, &format!("a whole number from 0 to {most}"));
    match scalar(node) {
        Value::Integer(number) => u64::try_from(number).ok().filter(|number| *number <= most).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// A number from `least` to `most`.
pub(super) fn number(key: &Key, node: &Node, least: f64, most: f64) -> Result<f64, FileError> {
    let number = match scalar(node) {
        Value::Integer(number) => number as f64,
        Value::Float(number) => number,
        _ => f64::NAN,
    };
    let fits = (least..=most).contains(&number);
    fits.then_some(number).ok_or_else(|| wrong_value(key, node, &format!("a number from {least} to {most}")))
}

/// A number of seconds, or a text such as `10m`.
pub(super) fn duration(key: &Key, node: &Node) -> Result<Period, FileError> {
    let wanted = "a number of seconds from 0.001 to 10 years, or a length of time, as in `10m` or `1 day`";
    let micros = match scalar(node) {
        Value::Integer(seconds) => u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(SECOND)),
        // The conversion saturates. A number that is too large, negative or NaN becomes one that from_micros refuses.
        Value::Float(seconds) => Some((seconds * SECOND as f64).round() as u64),
        Value::Text(text) => {
            return notation::scan_duration(&text.text).map_err(|error| notation_error(&error, &text, node.position));
        }
        _ => None,
    };
    micros.and_then(|micros| Period::from_micros(micros).ok()).ok_or_else(|| wrong_value(key, node, wanted))
}

/// Limits by keys.
fn overrides(
    key: &Key,
    node: &Node,
    own: impl Fn(&Node) -> Result<KeyOverride, FileError>,
) -> Result<Overrides, FileError> {
    let Value::Map(entries) = &node.value else {
        return Err(wrong_value(key, node, "a map from keys to limits, as in `{alice: 1000/minute, internal: none}`"));
    };
    let checked = |(key, node): &(Key, Node)| {
        networks::check_key(&key.name).map_err(|error| FileError::new(key.position, error.message()))?;
        Ok((key.name.clone(), own(node)?))
    };
    entries.iter().map(checked).collect()
}

/// A length of time, or a list of them.
fn block_for(key: &Key, node: &Node) -> Result<BlockFor, FileError> {
    let lengths = match &node.value {
        Value::List(items) => items.iter().map(|item| duration(key, item)).collect::<Result<Vec<_>, _>>()?,
        _ => vec![duration(key, node)?],
    };
    BlockFor::new(lengths).map_err(|error| FileError::new(node.position, error.message().to_owned()))
}

/// A number of units, or a part such as `5%`.
fn lease(key: &Key, node: &Node) -> Result<Lease, FileError> {
    let found = match scalar(node) {
        Value::Integer(units) => u64::try_from(units).ok().map(Lease::units),
        Value::Text(text) => Some(Lease::parse(&text.text)),
        _ => None,
    };
    let wrong = || wrong_value(key, node, "a number of units, or a part such as `5%`");
    found.and_then(Result::ok).ok_or_else(wrong)
}

/// Classes of calls with their parts.
fn priorities(key: &Key, node: &Node) -> Result<Priorities, FileError> {
    let Value::Map(classes) = &node.value else {
        return Err(wrong_value(key, node, "classes of calls with their parts, as in `{batch: 30%}`"));
    };
    let mut parts = Vec::with_capacity(classes.len());
    for (class, part) in classes {
        let Value::Text(text) = scalar(part) else {
            return Err(wrong_value(class, part, "a part such as `30%`"));
        };
        // Each part is read alone, so that an error has its position.
        Priorities::new([(&class.name, &text.text)]).map_err(|error| FileError::new(part.position, error.message()))?;
        parts.push((&class.name, text.text));
    }
    Priorities::new(parts).map_err(|error| FileError::new(node.position, error.message()))
}

/// The value, if it is a scalar. The environment holds texts only, so a text from there may be a number or a boolean.
fn scalar(node: &Node) -> Value {
    match &node.value {
        Value::Text(text) if text.from_environment => {
            plain_scalar(text.text.trim()).unwrap_or_else(|| node.value.clone())
        }
        Value::List(_) | Value::Map(_) | Value::Null => Value::Null,
        value => value.clone(),
    }
}

pub(super) fn wrong_value(key: &Key, node: &Node, wanted: &str) -> FileError {
    node.is_not(&format!("{} must be {wanted}", key.shown()), "")
}

/// An error of the notation, at its column in the file if that is known.
pub(super) fn notation_error(error: &notation::SyntaxError, text: &Text, position: Position) -> FileError {
    let position = text.position(error.column(&text.text), position);
    // The variable may hold a secret by mistake.
    let message = if text.from_environment { error.message_without(&text.text) } else { error.message(&text.text) };
    FileError::new(position, message)
}

/// The error for a name that is not allowed. `owner` begins the list of allowed names.
pub(super) fn unknown_name(key: &Key, allowed: &[&str], owner: &str, hint: &str) -> FileError {
    let near = if hint.is_empty() { &did_you_mean(&key.name, allowed.iter().copied()) } else { hint };
    FileError::new(key.position, format!("unknown name {}{near}\n{owner} {}", key.shown(), allowed.join(", ")))
}
