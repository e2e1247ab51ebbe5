//! The options of a policy.

use std::fmt;

use super::lease::Lease;
use super::limit::{Algorithm, Limit};
use super::period::Period;
use crate::error::{Error, Result, named};

/// The most attempts a journal remembers.
pub const MAX_JOURNAL: u32 = 10_000;

/// What a check answers when the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnStoreError {
    /// An error.
    Raise,
    /// Allowed, source `fallback`.
    Open,
    /// Denied, source `fallback`.
    Closed,
    /// The same policy, enforced in this process's memory until the store is back.
    #[default]
    Local,
}

impl OnStoreError {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Raise, Self::Open, Self::Closed, Self::Local];

    /// The word in files and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raise => "raise",
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Local => "local",
        }
    }

    /// The choice of that word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

impl fmt::Display for OnStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The options of a policy; by default none is set.
///
/// A minor version may add an option. Code that ends the list of its options with `..Options::default()` goes on to compile:
///
/// ```
/// use tidegate::{Options, Policy};
///
/// let limits = Policy::parse("20/minute; 5/3s")?.limits().to_vec();
/// let policy = Policy::new(limits, Options { shadow: true, ..Options::default() })?;
/// assert!(policy.options().shadow);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Overrides the limiter's choice.
    pub on_store_error: Option<OnStoreError>,
    /// Evaluate and count, but never deny.
    pub shadow: bool,
    /// Once denied, the key stays denied this long.
    pub block_for: Option<Period>,
    /// Charge denied checks too.
    pub count_denied: bool,
    /// Remember that many of the newest attempts with their metadata; 0 is none.
    pub journal: u32,
    /// Take units in advance and spend them without the network.
    pub lease: Option<Lease>,
}

impl Options {
    pub(super) fn validate(&self, limits: &[Limit]) -> Result<()> {
        if self.journal > MAX_JOURNAL {
            return Err(Error::policy(format!(
                "journal {} is too long: it must be at most {MAX_JOURNAL} attempts",
                self.journal
            )));
        }
        self.validate_lease(limits)
    }

    /// Whether these limits with these options can lease.
    fn validate_lease(&self, limits: &[Limit]) -> Result<()> {
        if self.lease.is_none() {
            return Ok(());
        }
        let of = |algorithm| limits.iter().find(|limit: &&Limit| limit.algorithm() == algorithm);
        let reason = if self.count_denied {
            format!("{} charges each denied check, so the store has to see every check", named("count_denied"))
        } else if self.journal > 0 {
            "a journal remembers every check, so the store has to see each".to_owned()
        } else if let Some(limit) = of(Algorithm::Concurrency) {
            format!("a unit of \"{limit}\" is held and given back, not spent")
        } else if let Some(limit) = of(Algorithm::LeakyBucket) {
            format!("each unit of \"{limit}\" has a delay of its own, which the store has to say")
        } else {
            return Ok(());
        };
        Err(Error::policy(format!("this policy cannot lease: {reason}; remove lease, or what forbids it")))
    }
}
