//! One limit: an algorithm with its numbers. This file validates them.

use std::fmt;
use std::sync::Arc;

use super::Algorithm;
use super::calendar::{Anchor, Calendar};
use super::period::{Period, TimeUnit};
use super::unit::Unit;
use crate::error::{Error, Result};

/// The largest count and the largest burst.
pub const MAX_COUNT: u64 = 1_000_000_000_000;
/// The default ttl of the holds of a `concurrency` limit.
pub const DEFAULT_TTL: Period = Period::MINUTE;
/// The default number of granules of a `sliding-window`.
pub const DEFAULT_PRECISION: u32 = 20;
/// The most granules a `sliding-window` may have.
pub const MAX_PRECISION: u32 = 1_000;
/// The longest that a bucket may take to drain: 100 years, in microseconds. This keeps every moment below 2^53.
const MAX_DRAIN: u128 = 100 * 366 * 86_400 * 1_000_000;

/// The family of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlgorithmKind {
    /// Windows one after the other, with edges between them.
    Windows,
    /// A window that ends now.
    MovingWindow,
    /// A bucket, which has a burst.
    Bucket,
    /// A bucket that delays its callers.
    Queue,
    /// Units that a caller holds, and gives back when the work is done.
    Held,
}

impl Algorithm {
    /// The algorithm of that name. Case does not matter, and you can write `_` for `-`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// True for a bucket, which can have a `burst`.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        matches!(self.kind(), AlgorithmKind::Bucket | AlgorithmKind::Queue)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One limit: `count` units per `period`, counted by an algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    count: u64,
    period: Period,
    burst: Option<u64>,
    initial: Option<u64>,
    precision: u32,
    unit: Option<Unit>,
    calendar: Option<Arc<Calendar>>,
}

impl Limit {
    /// A limit with the defaults of its algorithm. For `concurrency` the period is the ttl of the holds.
    ///
    /// # Errors
    /// `policy_invalid` when the count is too large.
    pub fn new(algorithm: Algorithm, count: u64, period: Period) -> Result<Self> {
        Self::bounded("count", count)?;
        Ok(Self {
            algorithm,
            count,
            period,
            burst: None,
            initial: None,
            precision: DEFAULT_PRECISION,
            unit: None,
            calendar: None,
        })
    }

    /// Gives the limit room for `burst` units at once. Only buckets have a burst.
    ///
    /// # Errors
    /// `policy_invalid` when the algorithm has no burst, or filling it would take over 100 years.
    pub fn with_burst(mut self, burst: u64) -> Result<Self> {
        if !self.algorithm.has_burst() {
            return Err(Error::policy(format!(
                "{} has no burst: only token-bucket, gcra and leaky-bucket have one",
                self.algorithm
            )));
        }
        Self::bounded("burst", burst)?;
        if self.count > 0 && u128::from(burst) * u128::from(self.period.micros()) / u128::from(self.count) > MAX_DRAIN {
            return Err(Error::policy(format!(
                "burst {burst} would take over 100 years to come back at {} per {}: lower the burst",
                self.count, self.period
            )));
        }
        self.burst = Some(burst);
        Ok(self)
    }

    /// Lets the token bucket start with `initial` tokens instead of full.
    ///
    /// # Errors
    /// `policy_invalid` when it is no token bucket, or `initial` is above its capacity.
    pub fn with_initial(mut self, initial: u64) -> Result<Self> {
        if self.algorithm != Algorithm::TokenBucket {
            return Err(Error::policy(format!(
                "{} has no initial: only token-bucket starts with tokens",
                self.algorithm
            )));
        }
        if initial > self.capacity() {
            return Err(Error::policy(format!(
                "initial {initial} is more than the bucket holds ({})",
                self.capacity()
            )));
        }
        self.initial = Some(initial);
        Ok(self)
    }

    /// Divides the sliding window into `precision` granules.
    ///
    /// # Errors
    /// `policy_invalid` when it is no sliding window, or the precision is not from 1 to 1000.
    pub fn with_precision(mut self, precision: u32) -> Result<Self> {
        if self.algorithm != Algorithm::SlidingWindow {
            return Err(Error::policy(format!(
                "{} has no precision: only sliding-window has granules",
                self.algorithm
            )));
        }
        if !(1..=MAX_PRECISION).contains(&precision) {
            return Err(Error::policy(format!(
                "precision {precision} is out of range: it must be from 1 to {MAX_PRECISION}"
            )));
        }
        self.precision = precision;
        Ok(self)
    }

    /// Names the unit of the limit. A call passes how many of these it takes, beside its cost.
    ///
    /// # Errors
    /// `policy_invalid` for an invalid name, and for `concurrency`.
    pub fn with_unit(mut self, name: &str) -> Result<Self> {
        if self.algorithm == Algorithm::Concurrency {
            return Err(Error::policy(
                "a concurrency limit cannot have a unit: it counts calls in progress, and a call holds as many as its cost. \
                 Leave the unit out",
            ));
        }
        self.unit = Some(Unit::new(name)?);
        Ok(self)
    }

    /// Lets each window begin at that moment of its period, such as `day 15 at 06:00`. Only a `calendar-window` of one day, week,
    /// month or year has such windows. A month without that day begins on its last. A year begins on that day of January.
    ///
    /// # Errors
    /// `policy_invalid` for every other limit, and for an anchor that the period does not have.
    pub fn with_anchor(mut self, anchor: Anchor) -> Result<Self> {
        let unit = self.unit_of_calendar("from")?;
        self.calendar = Calendar::with_anchor(unit, self.calendar.as_deref(), anchor)?.map(Arc::new);
        Ok(self)
    }

    /// Lets windows begin by the clocks of a time zone, an IANA name such as `Europe/Berlin`. Only a `calendar-window` of one day,
    /// week, month or year has such windows.
    ///
    /// # Errors
    /// `policy_invalid` for every other limit, and for an unknown zone.
    pub fn with_zone(mut self, zone: &str) -> Result<Self> {
        let unit = self.unit_of_calendar("in")?;
        self.calendar = Calendar::with_zone(unit, self.calendar.as_deref(), zone)?.map(Arc::new);
        Ok(self)
    }

    /// The unit of time of a limit that may have a custom calendar.
    fn unit_of_calendar(&self, word: &str) -> Result<TimeUnit> {
        if self.algorithm != Algorithm::CalendarWindow {
            return Err(Error::policy(format!(
                "{} has no calendar: write `{}` before the count for windows that have `{word}`",
                self.algorithm,
                Algorithm::CalendarWindow
            )));
        }
        match (self.period.multiple(), self.period.unit()) {
            (1, unit @ (TimeUnit::Day | TimeUnit::Week | TimeUnit::Month | TimeUnit::Year)) => Ok(unit),
            _ => Err(Error::policy(format!(
                "`{word}` needs a period of one day, week, month or year, not {}",
                self.period
            ))),
        }
    }

    fn bounded(what: &str, number: u64) -> Result<()> {
        if number > MAX_COUNT {
            return Err(Error::policy(format!("{what} {number} is too large: it must be at most 10^12")));
        }
        Ok(())
    }

    /// The algorithm that counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per period.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period. For `concurrency` the ttl of the holds.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The burst, if the limit sets one.
    #[must_use]
    pub const fn burst(&self) -> Option<u64> {
        self.burst
    }

    /// The tokens with which a token bucket starts, if the limit sets them.
    #[must_use]
    pub const fn initial(&self) -> Option<u64> {
        self.initial
    }

    /// The granules of a sliding window.
    #[must_use]
    pub const fn precision(&self) -> u32 {
        self.precision
    }

    /// The unit that it counts, if it names one. Otherwise it counts the cost of calls.
    #[must_use]
    pub const fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref()
    }

    /// The moment in its period at which each window begins. `None` for the default of the period, such as `day 1`.
    #[must_use]
    pub fn anchor(&self) -> Option<&Anchor> {
        self.calendar.as_ref()?.anchor()
    }

    /// The time zone that sets the windows. `None` for UTC.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.calendar.as_ref()?.zone()
    }

    /// The calendar that replaces the one of UTC.
    pub(crate) const fn calendar(&self) -> Option<&Arc<Calendar>> {
        self.calendar.as_ref()
    }

    /// The most units that are ever admitted at once. A count of 0 always denies, whatever the burst.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.count == 0 { 0 } else { self.burst.unwrap_or(self.count) }
    }
}

/// The canonical notation. It parses back to the same limit, unless the limit has an `initial` or a `precision`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::Concurrency => {
                let period = self.period;
                return write!(f, "concurrency {} ttl {} {}", self.count, period.multiple(), period.unit().name());
            }
            Algorithm::SlidingWindow => {}
            algorithm => write!(f, "{algorithm} ")?,
        }
        match &self.unit {
            Some(unit) => write!(f, "{} {unit}/{}", self.count, self.period)?,
            None => write!(f, "{}/{}", self.count, self.period)?,
        }
        if let Some(burst) = self.burst {
            write!(f, " burst {burst}")?;
        }
        self.calendar.as_ref().map_or(Ok(()), |calendar| calendar.fmt(f))
    }
}
