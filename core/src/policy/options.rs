//! The options of a policy.

use std::fmt;

use super::block_for::BlockFor;
use super::declaration::{ArgumentKind, OptionDeclaration, OptionDefault};
use super::lease::Lease;
use super::overrides::{MAX_OVERRIDES, Overrides};
use super::priorities::Priorities;
use crate::algorithm::{AlgorithmKind, Limit, Period, SECOND};
use crate::error::{Error, Result, named};

/// The most attempts a journal remembers.
pub const MAX_JOURNAL: u32 = 10_000;

/// How many microseconds after a block the first length comes again if the policy sets no `forgive`: a day.
const DEFAULT_FORGIVE: u64 = 86_400 * SECOND;

/// The answer of a check when the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnStoreError {
    /// An error.
    Raise,
    /// Allowed, source `fallback`.
    Open,
    /// Denied, source `fallback`.
    Closed,
    /// The policy is enforced in this process's memory until the store is back.
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

    /// The choice and its effect, for messages about a store that failed.
    pub(crate) const fn applied(self) -> &'static str {
        match self {
            Self::Raise => "calls fail with this error (the limiter's on_store_error is `raise`)",
            Self::Open => "all calls are admitted (the limiter's on_store_error is `open`)",
            Self::Closed => "all calls are denied (the limiter's on_store_error is `closed`)",
            Self::Local => "this process limits by itself (the limiter's on_store_error is `local`)",
        }
    }

    /// The choice for that word.
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

/// The kind of value that an option takes. A host converts the caller's value by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// True or false.
    Flag,
    /// One of the words of [`OnStoreError::ALL`].
    OnStoreError,
    /// A length of time.
    Duration,
    /// A length of time, or several.
    BlockFor,
    /// A whole number up to a largest one, with a name for the things that it counts.
    Count {
        /// The name of the counted things.
        of: &'static str,
        /// The largest number.
        most: u32,
    },
    /// A number of units, or a part such as `5%`.
    Lease,
    /// Classes of calls by name, each with a part such as `30%`.
    Priorities,
    /// Limits by keys.
    Overrides,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// True or false.
    Flag(bool),
    /// The answer of a check when the store fails.
    OnStoreError(OnStoreError),
    /// A length of time.
    Duration(Period),
    /// The lengths of blocks.
    BlockFor(BlockFor),
    /// A whole number.
    Count(u32),
    /// A number of units, or a part.
    Lease(Lease),
    /// Classes of calls with their parts.
    Priorities(Priorities),
    /// Limits by keys.
    Overrides(Overrides),
}

/// Writes numbers as they are. Text for people may need separators.
impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::OnStoreError(value) => value.fmt(f),
            Self::Duration(value) => value.fmt(f),
            Self::BlockFor(value) => value.fmt(f),
            Self::Count(value) => value.fmt(f),
            Self::Lease(value) => value.fmt(f),
            Self::Priorities(value) => value.fmt(f),
            Self::Overrides(value) => value.fmt(f),
        }
    }
}

/// An option of a policy, as files and hosts set it by its name.
#[derive(Debug)]
pub struct PolicyOption {
    /// The name in files and in Rust.
    pub name: &'static str,
    /// The kind of value that it takes.
    pub kind: OptionKind,
    /// A sentence about its purpose.
    pub documentation: &'static str,
    /// A sentence about its effect, with `{}` for the value.
    pub effect: &'static str,
    get: fn(&Options) -> Option<OptionValue>,
    set: fn(&mut Options, OptionValue),
}

impl PolicyOption {
    /// The option of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICY_OPTIONS.iter().find(|option| option.name == name)
    }

    /// The declaration of the option for callers in code.
    #[must_use]
    pub const fn declaration(&self) -> OptionDeclaration {
        let (kind, default) = match self.kind {
            OptionKind::Flag => (ArgumentKind::Flag, OptionDefault::Flag(false)),
            OptionKind::OnStoreError => (ArgumentKind::OnStoreError, OptionDefault::Nothing),
            OptionKind::Duration => (ArgumentKind::Period, OptionDefault::Nothing),
            OptionKind::BlockFor => (ArgumentKind::Periods, OptionDefault::Nothing),
            OptionKind::Count { .. } => (ArgumentKind::Count, OptionDefault::Count(0)),
            OptionKind::Lease => (ArgumentKind::Lease, OptionDefault::Nothing),
            OptionKind::Priorities => (ArgumentKind::Priorities, OptionDefault::Nothing),
            OptionKind::Overrides => (ArgumentKind::Overrides, OptionDefault::Nothing),
        };
        OptionDeclaration { name: self.name, kind, default, documentation: self.documentation }
    }

    /// Its value. `None` if it is not set and has no default.
    #[must_use]
    pub fn get(&self, options: &Options) -> Option<OptionValue> {
        (self.get)(options)
    }

    /// True if it has another value than its default.
    #[must_use]
    pub fn is_set(&self, options: &Options) -> bool {
        self.get(options) != self.get(&Options::default())
    }

    /// Sets it to a value of its kind. A value of another kind changes nothing.
    pub fn set(&self, options: &mut Options, value: OptionValue) {
        (self.set)(options, value);
    }
}

/// Declares the options of a policy: [`Options`], and the list by which files and hosts set them.
macro_rules! policy_options {
    (
        $(#[$attribute:meta])*
        pub struct Options;
        $(#[doc = $documentation:literal] $name:ident: $type:ty = $kind:ident $({ $($bound:tt)+ })?, $effect:literal;)+
    ) => {
        $(#[$attribute])*
        pub struct Options {
            $(#[doc = $documentation] pub $name: $type,)+
        }

        /// Every option, in the order in which messages list them.
        pub const POLICY_OPTIONS: &[PolicyOption] = &[$(PolicyOption {
            name: stringify!($name),
            kind: OptionKind::$kind $({ $($bound)+ })?,
            documentation: $documentation.trim_ascii_start(),
            effect: $effect,
            get: |options| Option::from(options.$name.clone()).map(OptionValue::$kind),
            set: |options, value| {
                if let OptionValue::$kind(value) = value {
                    options.$name = value.into();
                }
            },
        }),+];
    };
}

policy_options! {
    /// The options of a policy. By default none is set.
    ///
    /// A minor version may add an option. End the list of your options with `..Options::default()` to be ready for that:
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
    pub struct Options;

    /// The answer to a check when the store fails. It overrides the choice of the limiter.
    on_store_error: Option<OnStoreError> = OnStoreError, "When the store fails: {}.";

    /// Evaluate and count the policy, but never deny a call.
    shadow: bool = Flag, "A shadow: it counts and reports denials, and denies nothing.";

    /// The time for which a key stays denied after a denial. With several times, each new block takes the next, and the last repeats.
    block_for: Option<BlockFor> = BlockFor, "Once denied, a key stays denied for {}, whatever its usage.";

    /// The time after the end of a block until the next block takes the first time of `block_for` again. Without it, a day.
    forgive: Option<Period> = Duration, "Blocks begin with the first length again {} after the last one has ended.";

    /// Charge denied checks too, so that a caller that keeps trying stays denied.
    count_denied: bool = Flag, "Denied checks count too: a caller that keeps trying stays out.";

    /// The number of newest attempts to remember with their metadata. With 0, nothing is remembered.
    journal: u32 = Count { of: "attempts", most: MAX_JOURNAL }, "The newest {} attempts are kept with their metadata.";

    /// The units that a process takes in advance and spends without the network: a number, or a part such as `5%`.
    lease: Option<Lease> = Lease, "Each process takes blocks of {} in advance and spends them without a call.";

    /// The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`.
    priorities: Option<Priorities> = Priorities, "Calls of a class leave a part of every limit free: {}.";

    /// The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold.
    max_hold: Option<Period> = Duration, "A hold is not renewed any more when it is {} old.";

    /// Other limits for single keys, by the key: a notation, or `none` for a key without limits.
    overrides: Option<Overrides> = Overrides, "These keys have limits of their own: {}.";
}

impl Options {
    pub(super) fn validate(&self, limits: &[Limit]) -> Result<()> {
        if self.journal > MAX_JOURNAL {
            return Err(Error::policy(format!(
                "journal {} is too long: it must be at most {MAX_JOURNAL} attempts",
                self.journal
            )));
        }
        if let Some(priorities) = &self.priorities {
            priorities.validate(limits)?;
        }
        if self.forgive.is_some() && self.block_for.is_none() {
            return Err(Error::policy(format!(
                "forgive is the time after which blocks begin anew, and this policy has no blocks: add {}, as in `1m, 10m, \
                 1h`, or remove forgive",
                named("block_for")
            )));
        }
        if let Some(overrides) = &self.overrides {
            self.validate_overrides(overrides, limits)?;
        }
        self.validate_lease(limits)
    }

    /// The options of a key that has an override.
    pub(super) fn of_override(&self) -> Self {
        Self { lease: None, overrides: None, ..self.clone() }
    }

    fn validate_overrides(&self, overrides: &Overrides, limits: &[Limit]) -> Result<()> {
        let keys = overrides.iter().len();
        if keys > MAX_OVERRIDES {
            return Err(Error::policy(format!("overrides has {keys} keys: it may have at most {MAX_OVERRIDES}")));
        }
        let options = self.of_override();
        for (key, own) in overrides.iter() {
            let about = |error: Error| Error::policy(format!("the override of {key:?}: {}", error.message()));
            own.check(limits).map_err(about)?;
            if !own.is_unlimited() {
                super::Policy::new(own.limits().to_vec(), options.clone()).map_err(about)?;
            }
        }
        Ok(())
    }

    /// How long after a block its level is kept, in microseconds. 0 if all blocks have the same length.
    pub(crate) fn level_life(&self) -> u64 {
        match &self.block_for {
            Some(lengths) if lengths.escalates() => self.forgive.map_or(DEFAULT_FORGIVE, Period::micros),
            _ => 0,
        }
    }

    /// Refuses a lease that these limits or these options do not allow.
    fn validate_lease(&self, limits: &[Limit]) -> Result<()> {
        if self.lease.is_none() {
            return Ok(());
        }
        let of = |kind| limits.iter().find(|limit: &&Limit| limit.algorithm().kind() == kind);
        let reason = if self.count_denied {
            format!("{} charges each denied check, so the store has to see every check", named("count_denied"))
        } else if self.journal > 0 {
            "a journal remembers every check, so the store has to see each".to_owned()
        } else if let Some(limit) = limits.iter().find(|limit| limit.unit().is_some()) {
            format!("a block has the same number of units of each limit, and \"{limit}\" names its own")
        } else if let Some(limit) = of(AlgorithmKind::Held) {
            format!("a unit of \"{limit}\" is held and given back, not spent")
        } else if let Some(limit) = of(AlgorithmKind::Queue) {
            format!("the store has to give each unit of \"{limit}\" its delay")
        } else {
            return Ok(());
        };
        Err(Error::policy(format!(
            "this policy cannot lease: {reason}. Remove lease, or the option or limit that forbids it"
        )))
    }
}

#[cfg(test)]
mod tests;
