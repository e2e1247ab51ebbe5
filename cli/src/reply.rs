//! Replies of servers to other commands than the calls of a limiter.

use std::time::Duration;

use redis::Value;
use tidegate::host::visible;

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
    let micros = text(micros)?.parse::<u32>().ok().filter(|micros| *micros < 1_000_000)?;
    Some(Duration::new(text(seconds)?.parse().ok()?, micros * 1_000))
}

/// The reply of a server to INFO.
#[derive(Debug, Default)]
pub(crate) struct Info(String);

impl Info {
    /// `None` if the user may not run INFO.
    pub(crate) fn of(reply: &Value) -> Option<Self> {
        text(reply).map(|text| Self(text.lines().map(visible).collect::<Vec<_>>().join("\n")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_server_says_is_no_moment_and_nothing_acts_on_the_terminal() {
        let reply = |words: [&str; 2]| Value::Array(words.map(|word| Value::BulkString(word.into())).to_vec());
        assert_eq!(moment(&reply(["7", "999999"])), Some(Duration::from_micros(7_999_999)));
        for words in [["18446744073709551615", "4294967295"], ["7", "1000000"], ["-1", "0"], ["7", ""]] {
            assert_eq!(moment(&reply(words)), None, "{words:?}");
        }
        let info = Info::of(&Value::BulkString(b"redis_version:7\x1b[2J\r\nrole:master\r\n".to_vec())).expect("a text");
        assert_eq!((info.get("redis_version"), info.get("role")), (Some("7\\u{1b}[2J"), Some("master")));
    }
}
