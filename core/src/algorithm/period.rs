//! A length of time as people write it: a multiple of a unit.

use std::fmt;

use crate::error::{Error, Result};

/// Microseconds in one millisecond.
pub(crate) const MILLI: u64 = 1_000;
/// Microseconds in one second.
pub(crate) const SECOND: u64 = 1_000_000;
/// Microseconds in one day.
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// The shortest period a limit may have: 1 ms.
const SHORTEST: u64 = MILLI;
/// The longest period a limit may have: 10 years of 366 days, so that calendar years fit.
pub(super) const LONGEST: u64 = 3_660 * DAY;

/// The units of the notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TimeUnit {
    /// A thousandth of a second.
    Millisecond,
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days. Begins on Monday in a `calendar-window`.
    Week,
    /// 30 days for windows that roll, a real month in a `calendar-window`.
    Month,
    /// 360 days for windows that roll, a real year in a `calendar-window`.
    Year,
}

impl TimeUnit {
    /// Every unit, from short to long.
    pub const ALL: &[Self] =
        &[Self::Millisecond, Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The unit's length in microseconds, months of 30 and years of 360 days.
    #[must_use]
    pub const fn micros(self) -> u64 {
        match self {
            Self::Millisecond => MILLI,
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3_600 * SECOND,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 360 * DAY,
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        let lower = word.to_ascii_lowercase();
        SPELLINGS.iter().find(|(name, _)| *name == lower).map(|(_, unit)| *unit)
    }

    /// The unit's name in the canonical notation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Millisecond => "ms",
            Self::Second => "s",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// Every spelling of a unit, the common ones first. One letter has no plural, because `ms` is a millisecond.
pub(crate) const SPELLINGS: [(&str, TimeUnit); 26] = [
    ("second", TimeUnit::Second),
    ("minute", TimeUnit::Minute),
    ("hour", TimeUnit::Hour),
    ("day", TimeUnit::Day),
    ("week", TimeUnit::Week),
    ("month", TimeUnit::Month),
    ("year", TimeUnit::Year),
    ("seconds", TimeUnit::Second),
    ("minutes", TimeUnit::Minute),
    ("hours", TimeUnit::Hour),
    ("days", TimeUnit::Day),
    ("weeks", TimeUnit::Week),
    ("months", TimeUnit::Month),
    ("years", TimeUnit::Year),
    ("ms", TimeUnit::Millisecond),
    ("s", TimeUnit::Second),
    ("sec", TimeUnit::Second),
    ("secs", TimeUnit::Second),
    ("m", TimeUnit::Minute),
    ("min", TimeUnit::Minute),
    ("mins", TimeUnit::Minute),
    ("h", TimeUnit::Hour),
    ("hr", TimeUnit::Hour),
    ("hrs", TimeUnit::Hour),
    ("d", TimeUnit::Day),
    ("w", TimeUnit::Week),
];

/// A validated length of time, from 1 ms to 10 years.
///
/// Two periods are equal when they mean the same: `60 s` is `1 minute`. A month is not 30 days, because they differ in
/// a `calendar-window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Period {
    unit: TimeUnit,
    micros: u64,
}

impl Period {
    pub(super) const MINUTE: Self = Self { unit: TimeUnit::Minute, micros: TimeUnit::Minute.micros() };

    /// `multiple` times `unit`.
    ///
    /// # Errors
    /// `policy_invalid` when it is shorter than 1 ms or longer than 10 years.
    pub fn new(multiple: u64, unit: TimeUnit) -> Result<Self> {
        let micros = multiple
            .checked_mul(unit.micros())
            .filter(|micros| (SHORTEST..=LONGEST).contains(micros))
            .ok_or_else(|| {
                Error::policy(format!(
                    "a period of {multiple} {} is out of range: it must be from 1 ms to 10 years",
                    unit.name()
                ))
            })?;
        Ok(Self { unit: Self::canonical_unit(unit, micros), micros })
    }

    /// A period of that many microseconds.
    ///
    /// # Errors
    /// `policy_invalid` when it is shorter than 1 ms or longer than 10 years.
    pub fn from_micros(micros: u64) -> Result<Self> {
        if !(SHORTEST..=LONGEST).contains(&micros) {
            return Err(Error::policy(format!(
                "a period of {micros} microseconds is out of range: it must be from 1 ms to 10 years"
            )));
        }
        Ok(Self { unit: Self::canonical_unit(TimeUnit::Millisecond, micros), micros })
    }

    /// The unit that stands for all units of a fixed length: the longest that divides the period.
    fn canonical_unit(unit: TimeUnit, micros: u64) -> TimeUnit {
        if unit >= TimeUnit::Week {
            return unit;
        }
        [TimeUnit::Day, TimeUnit::Hour, TimeUnit::Minute, TimeUnit::Second]
            .into_iter()
            .find(|unit| micros.is_multiple_of(unit.micros()))
            .unwrap_or(TimeUnit::Millisecond)
    }

    /// The length in microseconds. A month counts as 30 days and a year as 360.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.micros
    }

    /// The unit of time of [`Period::multiple`].
    #[must_use]
    pub const fn unit(self) -> TimeUnit {
        self.unit
    }

    /// The number of [`Period::unit`]s.
    #[must_use]
    pub const fn multiple(self) -> u64 {
        self.micros / self.unit.micros()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, micros) = (self.unit, self.micros);
        if !micros.is_multiple_of(unit.micros()) {
            return write!(f, "{micros}us");
        }
        match (self.multiple(), unit) {
            (1, unit) => f.write_str(unit.name()),
            (n, TimeUnit::Millisecond | TimeUnit::Second) => write!(f, "{n}{}", unit.name()),
            (n, unit) => write!(f, "{n} {}s", unit.name()),
        }
    }
}
