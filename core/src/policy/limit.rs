//! One limit: an algorithm with its numbers, validated here.

use std::fmt;

use super::period::Period;
use crate::error::{Error, Result};

/// The largest count and the largest burst.
pub const MAX_COUNT: u64 = 1_000_000_000_000;
/// The default number of granules of a `sliding-window`.
pub const DEFAULT_PRECISION: u32 = 20;
/// The most granules a `sliding-window` may have.
pub const MAX_PRECISION: u32 = 1_000;
/// The longest that a bucket may take to drain: 100 years, in microseconds. This keeps every moment below 2^53.
const MAX_DRAIN: u128 = 100 * 366 * 86_400 * 1_000_000;

/// How a limit counts. The names are those of the notation, with `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A window that the first admitted check opens.
    FixedWindow,
    /// A window aligned to the UTC calendar.
    CalendarWindow,
    /// The exact sum over the last period, with an entry for each admitted check.
    SlidingLog,
    /// The sum over the last period in granules; never more than the count in any window.
    SlidingWindow,
    /// The estimate from two aligned counters.
    SlidingCounter,
    /// A bucket of tokens that refills continuously.
    TokenBucket,
    /// The generic cell rate algorithm.
    ///
    /// With n units per period p, the *emission interval* T = p/n is the time that one unit takes at the allowed rate. The
    /// *theoretical arrival time* (TAT) is the moment at which all admitted units, one every T, have passed. A check of cost c
    /// at time t is admitted when max(TAT, t) + c·T - t <= burst·T; then TAT becomes max(TAT, t) + c·T. In textbooks the
    /// *burst tolerance* is (burst - 1)·T: how early a single unit may arrive.
    ///
    /// `gcra 5/s burst 3` has T = 200 ms and burst·T = 600 ms:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tidegate::{Limiter, ManualClock};
    ///
    /// let ms = Duration::from_millis;
    /// let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    /// let limiter = Limiter::builder().clock(Arc::clone(&clock)).build()?;
    /// let check = || limiter.check("gcra 5/s burst 3", "alice");
    ///
    /// // Three units at once; TAT moves to 200, 400 and 600 ms from now.
    /// for tat in [200, 400, 600] {
    ///     let decision = check()?;
    ///     assert!(decision.allowed());
    ///     assert_eq!(decision.reset_after(), ms(tat));
    /// }
    /// // The next unit would move it to 800 ms, which is more than burst·T: refused for 800 - 600 = 200 ms.
    /// let denied = check()?;
    /// assert!(!denied.allowed());
    /// assert_eq!(denied.retry_after(), Some(ms(200)));
    ///
    /// // Then there is room for one unit, and TAT moves to 800 ms from the start, 600 ms from now.
    /// clock.advance(ms(200));
    /// assert_eq!(check()?.reset_after(), ms(600));
    /// assert!(!check()?.allowed());
    ///
    /// // 800 ms later TAT is in the past: the key is as if unused, but for this unit.
    /// clock.advance(ms(800));
    /// assert_eq!(check()?.remaining(), 2);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    Gcra,
    /// A queue that one unit leaves every period/count.
    LeakyBucket,
    /// Units in progress at the same time.
    Concurrency,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 9] = [
        Self::FixedWindow,
        Self::CalendarWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::TokenBucket,
        Self::Gcra,
        Self::LeakyBucket,
        Self::Concurrency,
    ];

    /// The name in the notation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed-window",
            Self::CalendarWindow => "calendar-window",
            Self::SlidingLog => "sliding-log",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingCounter => "sliding-counter",
            Self::TokenBucket => "token-bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky-bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// The algorithm of that name; case does not matter and `_` is accepted for `-`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Whether it is a bucket, so that `burst` means something.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::Gcra | Self::LeakyBucket)
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
}

impl Limit {
    /// A limit with the defaults of its algorithm. For `concurrency` the period is the holds' ttl.
    ///
    /// # Errors
    /// `policy_invalid` when the count is too large.
    pub fn new(algorithm: Algorithm, count: u64, period: Period) -> Result<Self> {
        Self::bounded("count", count)?;
        Ok(Self { algorithm, count, period, burst: None, initial: None, precision: DEFAULT_PRECISION })
    }

    /// Changes the limit so that it has room for `burst` units at once; only buckets have one.
    ///
    /// # Errors
    /// `policy_invalid` when the algorithm has no burst, or filling it would take over 100 years.
    pub fn with_burst(mut self, burst: u64) -> Result<Self> {
        if !self.algorithm.has_burst() {
            return Err(Error::policy(format!(
                "burst means nothing to {}: only token-bucket, gcra and leaky-bucket have one",
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
                "initial means nothing to {}: only token-bucket starts with tokens",
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
                "precision means nothing to {}: only sliding-window has granules",
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

    fn bounded(what: &str, number: u64) -> Result<()> {
        if number > MAX_COUNT {
            return Err(Error::policy(format!("{what} {number} is too large: it must be at most 10^12")));
        }
        Ok(())
    }

    /// How it counts.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per period.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The period; the ttl of the holds for `concurrency`.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The burst, when one was given.
    #[must_use]
    pub const fn burst(&self) -> Option<u64> {
        self.burst
    }

    /// The tokens with which a token bucket starts, when that was given.
    #[must_use]
    pub const fn initial(&self) -> Option<u64> {
        self.initial
    }

    /// The granules of a sliding window.
    #[must_use]
    pub const fn precision(&self) -> u32 {
        self.precision
    }

    /// The most units that are ever admitted at once. A count of 0 always denies, whatever the burst.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        if self.count == 0 { 0 } else { self.burst.unwrap_or(self.count) }
    }
}

/// The canonical notation. It parses back to the same limit, unless that has an `initial` or a `precision`.
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
        write!(f, "{}/{}", self.count, self.period)?;
        match self.burst {
            Some(burst) => write!(f, " burst {burst}"),
            None => Ok(()),
        }
    }
}
