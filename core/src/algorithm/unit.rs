//! The name of the unit that a limit counts.

use std::fmt;

use compact_str::CompactString;

use super::{Algorithm, TimeUnit};
use crate::error::{Error, Result};

/// The longest name.
const MAX_UNIT: usize = 64;
/// The words of the notation that are neither algorithms nor units of time, and `cost`, a call's own number.
const WORDS: [&str; 15] = [
    "at",
    "burst",
    "cost",
    "counted",
    "from",
    "in",
    "per",
    "ttl",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// The unit that a limit counts if it names one, such as `tokens` in `100000 tokens/minute`. Case does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit(CompactString);

impl Unit {
    /// A call takes one of this unit by default.
    pub const REQUESTS: &'static str = "requests";

    /// The unit of that name.
    ///
    /// # Errors
    /// `policy_invalid` for a name that is no word, and for a word of the notation.
    pub fn new(name: &str) -> Result<Self> {
        if name.len() > MAX_UNIT || !is_word(name) {
            return Err(Error::policy(format!(
                "{:?} cannot be the name of a unit: give at most {MAX_UNIT} characters of a-z, 0-9, - and _, and begin with \
                 one of a-z",
                name.chars().take(MAX_UNIT).collect::<String>()
            )));
        }
        if Self::is_reserved(name) {
            return Err(Error::policy(format!(
                "a limit cannot count {name:?}, which is a word of the notation: give another name, such as tokens"
            )));
        }
        Ok(Self(CompactString::from(name.to_ascii_lowercase())))
    }

    /// True if a word means something else in the notation.
    pub(crate) fn is_reserved(word: &str) -> bool {
        WORDS.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
            || TimeUnit::of_word(word).is_some()
            || Algorithm::from_name(word).is_some()
    }

    /// The name, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name)
    }
}

/// True if a name that a user chose consists of a-z, 0-9, - and _, and begins with one of a-z.
pub(crate) fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
