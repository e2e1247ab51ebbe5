//! What is limited and how: policies, limits, their notation and their file. They are parsed and validated here, so that
//! every number elsewhere is valid.

mod derived;
#[cfg_attr(not(feature = "files"), path = "without_files.rs")]
mod file;
mod format;
mod lease;
mod limit;
mod lint;
mod notation;
mod options;
mod period;
mod suggestion;

pub use file::PolicyFile;
pub use format::Format;
pub use lease::Lease;
pub(crate) use lease::SHORTEST_LEASE;
pub use limit::{Algorithm, DEFAULT_PRECISION, Limit, MAX_COUNT, MAX_PRECISION};
pub(crate) use lint::lint_text;
pub use lint::{Warning, lint, lint_policies};
pub use options::{MAX_JOURNAL, OnStoreError, Options};
pub use period::{Period, Unit};

use std::fmt;

use self::derived::Derived;
pub(crate) use self::derived::DerivedValue;
pub(crate) use self::notation::may_be_url;
pub(crate) use self::suggestion::did_you_mean;
use crate::allocation::allocated;
use crate::error::{Error, Result};

/// The most limits one policy may have.
pub const MAX_LIMITS: usize = 15;
/// The longest name a policy may have, in bytes.
pub const MAX_NAME: usize = 256;

/// A named, immutable list of limits that must all admit, plus options.
///
/// A policy without a name is identified by its canonical notation: the same notation in two places is the same policy.
#[derive(Debug, Clone)]
pub struct Policy {
    name: String,
    limits: Vec<Limit>,
    options: Options,
    derived: Derived,
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.limits, &self.options) == (&other.name, &other.limits, &other.options)
    }
}

impl Eq for Policy {}

impl Policy {
    /// A policy of these limits with these options.
    ///
    /// # Errors
    /// `policy_invalid` when there is no limit or more than 15, or an option is out of range.
    pub fn new(limits: Vec<Limit>, options: Options) -> Result<Self> {
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(Error::policy(format!(
                "a policy has {} limits: it must have from 1 to {MAX_LIMITS}",
                limits.len()
            )));
        }
        options.validate(&limits)?;
        let name = limits.iter().map(Limit::to_string).collect::<Vec<_>>().join("; ");
        Ok(Self { name, limits, options, derived: Derived::default() })
    }

    /// The policy that a notation such as `20/minute; 5/3s` means.
    ///
    /// # Errors
    /// `policy_invalid` with the text, the column and what was expected there.
    pub fn parse(text: &str) -> Result<Self> {
        Self::new(notation::parse(text)?, Options::default())
    }

    /// The same policy under a name.
    ///
    /// # Errors
    /// `policy_invalid` when the name is empty or longer than 256 bytes.
    pub fn named(mut self, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::policy(format!(
                "a policy's name has {} bytes: it must have from 1 to {MAX_NAME}",
                name.len()
            )));
        }
        (self.name, self.derived) = (name, Derived::default());
        Ok(self)
    }

    /// What another module derives from the policy: made from a copy by the first call, then kept with the policy and its
    /// clones.
    #[inline]
    pub(crate) fn derived(&self, derive: impl FnOnce(Self) -> DerivedValue) -> &DerivedValue {
        self.derived.get_or_init(|| derive(Self { derived: Derived::default(), ..self.clone() }))
    }

    /// The bytes that it has allocated, without what is derived from it.
    pub(crate) fn heap_bytes(&self) -> usize {
        allocated(self.name.capacity()) + allocated(self.limits.capacity() * size_of::<Limit>())
    }

    /// The name, or the canonical notation when no name was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits, in the order they were written.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Warns of what probably does not do what its author meant.
    #[must_use]
    pub fn lint(&self) -> Vec<Warning> {
        lint_policies([self])
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }
}

/// The notation of its limits.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.limits.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{limit}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}
