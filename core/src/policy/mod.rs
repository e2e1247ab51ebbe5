//! Policies and limits, their notation and their file. This module parses and validates them, so that every number
//! elsewhere is valid.

mod block_for;
pub(crate) mod declaration;
mod derived;
#[cfg_attr(not(feature = "files"), path = "without_files.rs")]
mod file;
mod format;
mod lease;
mod lint;
mod notation;
pub(crate) mod options;
mod overrides;
mod paced;
pub(crate) mod prefix;
mod priorities;
pub(crate) mod suggestion;

pub use crate::algorithm::{
    Algorithm, Anchor, DEFAULT_PRECISION, Limit, MAX_COUNT, MAX_PRECISION, Period, TimeUnit, Unit,
};
pub use block_for::{BlockFor, MAX_BLOCK_LENGTHS};
pub use file::PolicyFile;
pub use format::Format;
pub use lease::Lease;
pub(crate) use lease::SHORTEST_LEASE;
pub(crate) use lint::lint_text;
pub use lint::{Warning, lint, lint_policies};
pub use options::{MAX_JOURNAL, OnStoreError, Options};
#[cfg(feature = "redis")]
pub(crate) use overrides::MAX_OVERRIDE_TEXT;
pub use overrides::{KeyOverride, MAX_OVERRIDES, Overrides};
pub(crate) use priorities::CapacityPart;
pub use priorities::Priorities;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;

use self::derived::Derived;
pub(crate) use self::derived::{DerivedValue, FieldTexts};
pub(crate) use self::notation::{may_be_url, quoted};
use self::paced::Learning;
pub(crate) use self::suggestion::did_you_mean;
use crate::algorithm::Calendar;
use crate::error::{Error, Result};
use crate::tables::allocation::allocated;

/// The most limits one policy may have.
pub const MAX_LIMITS: usize = 15;
/// The length of a limit in the fields of responses, besides the name: quotes, numbers and their names.
const TEXT_OF_LIMIT: usize = 64;
/// The longest name a policy may have, in bytes.
pub const MAX_NAME: usize = 256;

/// A named, immutable list of limits that must all admit, plus options.
///
/// A policy without a name is identified by its canonical notation: the same notation in two places is the same policy.
///
/// ```
/// use tidegate::{Limiter, Options, Policy};
///
/// let login = Policy::parse("20/minute; 5/3s")?.named("login")?;
/// assert_eq!(login.limits().len(), 2);
///
/// // With options:
/// let limits = Policy::parse("100/minute")?.limits().to_vec();
/// let api = Policy::new(limits, Options { journal: 100, ..Options::default() })?.named("api")?;
///
/// let limiter = Limiter::builder().named(login)?.named(api)?.build()?;
/// assert!(limiter.check("login", "alice")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    name: String,
    limits: Vec<Limit>,
    options: Options,
    /// How outgoing calls learn. `None` for a policy that limits incoming calls.
    learning: Option<Learning>,
    derived: Derived,
    texts: OnceBox<Arc<FieldTexts>>,
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.limits, &self.options, self.learning)
            == (&other.name, &other.limits, &other.options, other.learning)
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
        Ok(Self { name, limits, options, learning: None, derived: Derived::default(), texts: OnceBox::new() })
    }

    /// The policy of a notation such as `20/minute; 5/3s`.
    ///
    /// # Errors
    /// `policy_invalid` with the text, the column and the expected words.
    pub fn parse(text: &str) -> Result<Self> {
        Self::new(notation::parse(text)?, Options::default())
    }

    /// Gives the policy a name.
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
        (self.name, self.derived, self.texts) = (name, Derived::default(), OnceBox::new());
        Ok(self)
    }

    /// This policy with the numbers of one of its keys. It leases nothing, because a block has the numbers of the policy.
    pub(crate) fn overridden(&self, own: &KeyOverride) -> Result<Self> {
        own.check(&self.limits)?;
        let limits = if own.is_unlimited() { self.limits.clone() } else { own.limits().to_vec() };
        let own = Self::new(limits, self.options.of_override())?.named(self.name.clone())?;
        match self.learning {
            Some(learning) => own.paced(Duration::from_micros(learning.margin)),
            None => Ok(own),
        }
    }

    /// A value that another module derives from the policy. The first call makes it from a copy, and the policy and its
    /// clones keep it.
    #[inline]
    pub(crate) fn derived(&self, derive: impl FnOnce(Self) -> DerivedValue) -> &DerivedValue {
        self.derived.get_or_init(|| derive(Self { derived: Derived::default(), ..self.clone() }))
    }

    /// The texts about the policy in the fields of responses. The first call writes them.
    #[inline]
    pub(crate) fn field_texts(&self, write: impl FnOnce(&Self) -> FieldTexts) -> &FieldTexts {
        self.texts.get_or_init(|| Box::new(Arc::new(write(self))))
    }

    /// The bytes that it has allocated or may allocate, without the values that other modules derive from it.
    pub(crate) fn heap_bytes(&self) -> usize {
        let texts = (self.limits.len() + 1) * (self.name.len() + TEXT_OF_LIMIT);
        let calendars = self.limits.iter().filter(|limit| limit.calendar().is_some()).count();
        allocated(self.name.capacity())
            + self.options.priorities.as_ref().map_or(0, Priorities::heap_bytes)
            + allocated(self.limits.capacity() * size_of::<Limit>())
            + allocated(texts)
            + calendars * allocated(size_of::<Calendar>() + 16)
    }

    /// The name of one of its limits in the fields and problems of responses: the name of the policy and, if it has several
    /// limits, their number, such as `login-2`.
    pub(crate) fn limit_name(&self, index: usize) -> String {
        if self.limits.len() == 1 { self.name.clone() } else { format!("{}-{}", self.name, index + 1) }
    }

    /// Reads the policy's name as the name of another policy's limit: that policy and the number of the limit, such as
    /// `login` and 2 for `login-2`. `None` if it does not look like one.
    pub(crate) fn as_limit_name(&self) -> Option<(&str, usize)> {
        let (policy, digits) = self.name.rsplit_once('-')?;
        let number = digits.parse().ok()?;
        ((1..=MAX_LIMITS).contains(&number) && digits == number.to_string()).then_some((policy, number))
    }

    /// The reason why two policies clash, if they do: they have the same name, or one has the name of a limit of the other.
    pub(crate) fn clash(&self, other: &Self) -> Option<String> {
        let is_limit_of = |one: &Self, other: &Self| {
            let found = one.as_limit_name().filter(|(policy, _)| *policy == other.name);
            found.is_some_and(|(_, number)| other.limits.len() > 1 && number <= other.limits.len())
        };
        let (policy, limit) = match (is_limit_of(self, other), is_limit_of(other, self)) {
            _ if self.name == other.name => return Some(format!("two policies have the name {:?}", self.name)),
            (true, _) => (other, self),
            (_, true) => (self, other),
            _ => return None,
        };
        let (policy, limit) = (&policy.name, &limit.name);
        Some(format!("the policy {limit:?} has the name that responses give a limit of the policy {policy:?}"))
    }

    /// The name, or the canonical notation of a policy without one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits, in their original order.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Warns about numbers and options that probably do not do what their author meant.
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
