//! Replies of servers to commands that are no calls.

use std::time::Duration;

use redis::Value;

/// A reply that is text.
pub(crate) fn text(reply: &Value) -> Option<&str> {
    match reply {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The moment of a reply to TIME.
pub(crate) fn moment(reply: &Value) -> Option<Duration> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    Some(Duration::new(text(seconds)?.parse().ok()?, text(micros)?.parse::<u32>().ok()?.checked_mul(1_000)?))
}

/// What a server says of itself: the reply to INFO.
#[derive(Debug, Default)]
pub(crate) struct Info(String);

impl Info {
    /// `None` when the user may not ask.
    pub(crate) fn of(reply: &Value) -> Option<Self> {
        text(reply).map(|text| Self(text.to_owned()))
    }

    #[cfg(test)]
    pub(crate) fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The values of `name0`, `name1`, …
    pub(crate) fn numbered(&self, name: &str) -> Vec<&str> {
        (0..).map_while(|number| self.get(&format!("{name}{number}"))).collect()
    }
}
