//! A policy for outgoing calls: docs/adr/0041.

use std::time::Duration;

use super::{Options, Policy};
use crate::algorithm::{Algorithm, Limit, MAX_COUNT, Period, SECOND};
use crate::error::{Error, Result};

/// The granules of a window, so that a unit comes back soon after its period.
const GRANULES: u32 = 200;
/// The margin takes at most this part of a period.
const MARGIN_PART: u64 = 10;

/// The largest margin.
const MAX_MARGIN: Duration = Duration::from_secs(60);

/// How a policy learns. It counts its calls even before any report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learning {
    /// How much the way to the other side varies, in microseconds.
    pub(super) margin: u64,
    /// True if only learned limits apply, so that a single call begins a window without a report.
    pub(crate) asks: bool,
}

impl Policy {
    /// This policy for outgoing calls. The other side counts calls as they arrive, and begins its windows when it likes, so the
    /// limits keep a margin for the varying way there. The calls take no turns in advance, and the policy learns from responses.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Policy};
    ///
    /// let policy = Policy::parse("gcra 10/s burst 100")?.paced(Duration::from_millis(50))?;
    /// assert_eq!(policy.limits()[0].burst(), Some(99));
    /// let limiter = Limiter::builder().build()?;
    /// assert!(limiter.check(&policy, "https://api.example.com")?.allowed());
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// `policy_invalid` for a margin of more than a minute.
    pub fn paced(&self, margin: Duration) -> Result<Self> {
        if margin > MAX_MARGIN {
            return Err(Error::policy(format!("a margin of {margin:?} is too long: it must be at most a minute")));
        }
        if self.learning.is_some() {
            return Ok(self.clone());
        }
        let micros = margin.as_micros() as u64;
        let policy = |makes_smaller| {
            let limits: Result<Vec<Limit>> =
                self.limits.iter().map(|limit| paced(limit, micros, makes_smaller)).collect();
            Self::new(limits?, self.options.of_override())
        };
        // The classes of a smaller bucket may leave nothing.
        let own = policy(true).or_else(|_| policy(false))?.named(self.name.clone())?;
        Ok(Self { learning: Some(Learning { margin: micros, asks: false }), ..own })
    }

    /// A policy that has no limits except those that responses announce.
    ///
    /// # Errors
    /// None. The numbers are fixed.
    pub fn learned() -> Result<Self> {
        let limit = Limit::new(Algorithm::Gcra, MAX_COUNT, Period::from_micros(SECOND)?)?;
        let policy = Self::new(vec![limit], Options::default())?.named("learned")?;
        Ok(Self { learning: Some(Learning { margin: 0, asks: true }), ..policy })
    }

    /// How its calls learn. `None` for a policy that limits incoming calls.
    pub(crate) const fn learning(&self) -> Option<Learning> {
        self.learning
    }

    /// True if only learned limits apply.
    pub(crate) fn asks(&self) -> bool {
        self.learning.is_some_and(|learning| learning.asks)
    }
}

/// A limit that never admits more within the margin than the other side does, at whatever moment its windows begin.
fn paced(limit: &Limit, margin: u64, makes_smaller: bool) -> Result<Limit> {
    let (period, count) = (limit.period().micros(), limit.count());
    let longer = |algorithm| {
        let longest = period / MARGIN_PART;
        // Twice, because the first calls of a client are later than the rest: they make connections.
        Limit::new(algorithm, count, Period::from_micros(period + (2 * margin).min(longest))?)
    };
    let paced = match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingCounter => {
            longer(Algorithm::SlidingWindow)?.with_precision(GRANULES.max(limit.precision()))?
        }
        Algorithm::SlidingLog => longer(Algorithm::SlidingLog)?,
        Algorithm::TokenBucket | Algorithm::Gcra => {
            let drains = (u128::from(count) * u128::from(margin)).div_ceil(u128::from(period)) as u64;
            let burst = limit.capacity();
            if makes_smaller && burst >= 2 * drains.max(1) {
                let smaller = Limit::new(limit.algorithm(), count, limit.period())?.with_burst(burst - drains)?;
                match limit.initial() {
                    Some(initial) => smaller.with_initial(initial.min(burst - drains))?,
                    None => smaller,
                }
            } else {
                slower(limit, margin)?
            }
        }
        Algorithm::LeakyBucket => slower(limit, margin)?,
        Algorithm::CalendarWindow | Algorithm::Concurrency => return Ok(limit.clone()),
    };
    match limit.unit() {
        Some(unit) => paced.with_unit(unit.name()),
        None => Ok(paced),
    }
}

/// A bucket with more time between its units by the margin, as far as that is a small part of it.
fn slower(limit: &Limit, margin: u64) -> Result<Limit> {
    let (period, count) = (limit.period().micros(), limit.count());
    let longer = margin.saturating_mul(count).min(period / MARGIN_PART);
    let slower =
        Limit::new(limit.algorithm(), count, Period::from_micros(period + longer)?)?.with_burst(limit.capacity())?;
    limit.initial().map_or(Ok(slower.clone()), |initial| slower.with_initial(initial))
}
