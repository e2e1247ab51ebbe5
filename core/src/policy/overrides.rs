//! Overrides: other limits for single keys of a policy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::notation;
use crate::algorithm::{AlgorithmKind, Limit, Unit};
use crate::error::{Error, Result};

/// The most overrides of one policy.
pub const MAX_OVERRIDES: usize = 10_000;
/// The longest text of an override, in bytes.
pub(crate) const MAX_OVERRIDE_TEXT: usize = 1_024;
/// The text for no limit.
const NONE: &str = "none";

/// The limits of one key in place of those of its policy. With `none` the key has no limit.
///
/// ```
/// use tidegate::KeyOverride;
///
/// assert_eq!(KeyOverride::parse("1000/minute; 50/s")?.limits().len(), 2);
/// assert!(KeyOverride::parse("none")?.is_unlimited());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOverride(Vec<Limit>);

impl KeyOverride {
    /// No limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(Vec::new())
    }

    /// An override with these limits. An empty list means no limit.
    #[must_use]
    pub const fn of(limits: Vec<Limit>) -> Self {
        Self(limits)
    }

    /// Parses a notation, or `none`.
    ///
    /// # Errors
    /// `policy_invalid` with the text, the column and the expected words.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().eq_ignore_ascii_case(NONE) { Ok(Self::unlimited()) } else { Ok(Self(notation::parse(text)?)) }
    }

    /// True if the key has no limit.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }

    /// The limits. Empty if the key has no limit.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.0
    }

    /// A text that parses back to the same override.
    ///
    /// # Errors
    /// `policy_invalid` for numbers that no notation can express, and for a long text.
    pub(crate) fn text(&self) -> Result<String> {
        let text = self.to_string();
        if Self::parse(&text).ok().as_ref() != Some(self) {
            return Err(Error::policy(format!(
                "an override \"{text}\" has numbers that a notation cannot have, such as `precision` or `initial`: leave them \
                 out"
            )));
        }
        if text.len() > MAX_OVERRIDE_TEXT {
            return Err(Error::policy(format!(
                "an override has {} bytes: it may have at most {MAX_OVERRIDE_TEXT}",
                text.len()
            )));
        }
        Ok(text)
    }

    /// # Errors
    /// `policy_invalid` for a limit that holds units in a policy that gives none back, and for a unit that no call of the policy
    /// counts.
    pub(crate) fn check(&self, limits: &[Limit]) -> Result<()> {
        let held = |limit: &&Limit| limit.algorithm().kind() == AlgorithmKind::Held;
        if let Some(limit) = self.0.iter().find(held)
            && !limits.iter().any(|limit| held(&limit))
        {
            return Err(Error::policy(format!(
                "the override \"{limit}\" is of a policy without a concurrency limit, whose calls give nothing back: add such a limit to \
                 the policy"
            )));
        }
        // Every call is a request, and has a number for limits that do not name a unit.
        let is_counted = |limit: &&Limit| {
            limit.unit().is_none_or(|unit| unit.is(Unit::REQUESTS) || limits.iter().any(|own| own.unit() == Some(unit)))
        };
        match self.0.iter().find(|limit| !is_counted(limit)) {
            Some(limit) => Err(Error::policy(format!(
                "the override \"{limit}\" counts {}, which its policy does not count, so that it would limit nothing: add such a limit to \
                 the policy, or leave it out of the override",
                limit.unit().map_or("", Unit::name)
            ))),
            None => Ok(()),
        }
    }
}

/// The notation of the limits, or `none`.
impl fmt::Display for KeyOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NONE);
        }
        self.0.iter().enumerate().try_for_each(|(index, limit)| {
            f.write_str(if index > 0 { "; " } else { "" })?;
            limit.fmt(f)
        })
    }
}

impl std::str::FromStr for KeyOverride {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// The overrides of a policy, by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides(Arc<BTreeMap<String, KeyOverride>>);

impl Overrides {
    /// The override of a key, if it has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&KeyOverride> {
        self.0.get(key)
    }

    /// Each key with its override, in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &KeyOverride)> {
        self.0.iter().map(|(key, own)| (key.as_str(), own))
    }
}

impl<K: Into<String>> FromIterator<(K, KeyOverride)> for Overrides {
    fn from_iter<I: IntoIterator<Item = (K, KeyOverride)>>(overrides: I) -> Self {
        Self(Arc::new(overrides.into_iter().map(|(key, own)| (key.into(), own)).collect()))
    }
}

/// The first overrides, and the number of the others.
impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        for (index, (key, own)) in self.iter().take(SHOWN).enumerate() {
            write!(f, "{}{key:?} {own}", if index > 0 { ", " } else { "" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
