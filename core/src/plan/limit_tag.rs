//! The identity of a limit in what is stored.

use smallvec::SmallVec;

use crate::policy::{Algorithm, Limit, Period, Unit};

/// Stands for a period that has no code of one byte.
const LONG_PERIOD: u8 = 255;
/// Stands for the ttl of a `concurrency` limit, which is a number and no part of its identity.
const ANY_PERIOD: u8 = 254;

/// The identity of a stored limit. After a change of its policy, a limit of the same algorithm and period keeps what was
/// used. A bucket's count is part of the tag because its state cannot be read without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitTag {
    /// From 1 on, in the order of [`Algorithm::ALL`].
    pub(super) algorithm: u8,
    /// One byte, or eight.
    pub(super) period: SmallVec<[u8; 8]>,
    /// The count of a bucket, at least 1; 0 for every other algorithm.
    pub(crate) bucket_count: u64,
}

impl LimitTag {
    pub(super) fn of(limit: &Limit) -> Self {
        let index = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm()).unwrap_or_default();
        let bucket_count = if limit.algorithm().has_burst() { limit.count().max(1) } else { 0 };
        Self { algorithm: index as u8 + 1, period: period_code(limit), bucket_count }
    }

    /// Whether both are of the same algorithm and period.
    pub(crate) fn is_same_limit(&self, other: &Self) -> bool {
        (self.algorithm, &self.period) == (other.algorithm, &other.period)
    }
}

/// A period as one byte when it is at most 31 of a unit, else as the byte 255 and its microseconds.
fn period_code(limit: &Limit) -> SmallVec<[u8; 8]> {
    if limit.algorithm() == Algorithm::Concurrency {
        return SmallVec::from_slice(&[ANY_PERIOD]);
    }
    let mut period = limit.period();
    if limit.algorithm() != Algorithm::CalendarWindow {
        // Outside of the calendar, weeks, months and years are only lengths.
        period = Period::from_micros(period.micros()).unwrap_or(period);
    }
    let unit = Unit::ALL.iter().position(|unit| *unit == period.unit()).unwrap_or_default() as u8;
    let (multiple, exact) = (period.multiple(), period.micros().is_multiple_of(period.unit().micros()));
    if exact && (1..=31).contains(&multiple) {
        return SmallVec::from_slice(&[unit * 31 + multiple as u8 - 1]);
    }
    let mut code = SmallVec::from_slice(&[LONG_PERIOD]);
    code.extend_from_slice(&period.micros().to_le_bytes()[..7]);
    if limit.algorithm() == Algorithm::CalendarWindow && period.unit() >= Unit::Week {
        // Periods stay below 2^49 µs: the last byte is free to distinguish 60 weeks from 420 days.
        code[7] |= unit << 4;
    }
    code
}
