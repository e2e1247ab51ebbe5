//! The identity of a limit in stored values.

use std::fmt;

use smallvec::SmallVec;

use crate::algorithm::{DEFAULT_TTL, Rule};
use crate::policy::{Algorithm, Limit, Period, TimeUnit};

/// Stands for a period that has no code of one byte.
const LONG_PERIOD: u8 = 255;
/// Stands for the ttl of a `concurrency` limit, which is a number and no part of its identity.
const ANY_PERIOD: u8 = 254;
/// Precedes the period of a limit that names its unit. Four bytes of the name's digest follow it.
const NAMED_UNIT: u8 = 253;
const NAMED_UNIT_BYTES: usize = 5;

/// The identity of a stored limit. After a change of its policy, a limit of the same algorithm and period keeps its
/// usage. A bucket's count is part of the tag because its state cannot be read without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitTag {
    /// From 1 on, in the order of [`Algorithm::ALL`].
    pub(super) algorithm: u8,
    /// The name of its unit as a digest, if it has one, and one byte or eight for its period.
    pub(super) period: SmallVec<[u8; 8]>,
    /// The count of a bucket, at least 1. It is 0 for every other algorithm.
    pub(crate) bucket_count: u64,
    /// True if the bucket of a tag that was read stores a fraction.
    pub(super) has_fraction: bool,
}

impl LimitTag {
    pub(super) fn of(limit: &Limit) -> Self {
        let index = Algorithm::ALL.iter().position(|algorithm| *algorithm == limit.algorithm()).unwrap_or_default();
        let bucket_count = if limit.algorithm().has_burst() { limit.count().max(1) } else { 0 };
        let mut period = SmallVec::new();
        if let Some(unit) = limit.unit() {
            period.push(NAMED_UNIT);
            period.extend_from_slice(&blake3::hash(unit.name().as_bytes()).as_bytes()[..NAMED_UNIT_BYTES - 1]);
        }
        period.extend_from_slice(&period_code(limit));
        Self { algorithm: index as u8 + 1, period, bucket_count, has_fraction: false }
    }

    /// Reads the tag at the start of the bytes.
    #[cfg(feature = "stored")]
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first()?;
        let (algorithm, width) = (head >> 4, usize::from(head & 7));
        let unit = if rest.first() == Some(&NAMED_UNIT) { NAMED_UNIT_BYTES } else { 0 };
        let length = unit + if rest.get(unit) == Some(&LONG_PERIOD) { 8 } else { 1 };
        let (period, rest) = rest.split_at_checked(length)?;
        let is_bucket = Algorithm::ALL.get(usize::from(algorithm).checked_sub(1)?)?.has_burst();
        let (bucket_count, rest) = rest.split_at_checked(if is_bucket { width } else { 0 })?;
        let mut count = [0; 8];
        count[..bucket_count.len()].copy_from_slice(bucket_count);
        *bytes = rest;
        let (period, bucket_count) = (SmallVec::from_slice(period), u64::from_le_bytes(count));
        Some(Self { algorithm, period, bucket_count, has_fraction: head >> 3 & 1 == 1 })
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        Algorithm::ALL[usize::from(self.algorithm.max(1) - 1).min(Algorithm::ALL.len() - 1)]
    }

    /// Its period. `None` if that is no part of the identity.
    pub(crate) fn period(&self) -> Option<Period> {
        let period = self.period.strip_prefix(&[NAMED_UNIT]).and_then(|rest| rest.get(4..)).unwrap_or(&self.period);
        match *period {
            [code] => Period::new(u64::from(code % 31 + 1), *TimeUnit::ALL.get(usize::from(code / 31))?).ok(),
            [LONG_PERIOD, a, b, c, d, e, f, g] => {
                let micros = u64::from_le_bytes([a, b, c, d, e, f, g & 15, 0]);
                match TimeUnit::ALL.get(usize::from(g >> 4)).filter(|_| g >> 4 > 0) {
                    Some(unit) => Period::new(micros / unit.micros(), *unit).ok(),
                    None => Period::from_micros(micros).ok(),
                }
            }
            _ => None,
        }
    }

    /// A rule of its algorithm and period. Its count is unknown.
    pub(super) fn any_rule(&self) -> Option<Rule> {
        Limit::new(self.algorithm(), 1, self.period().unwrap_or(DEFAULT_TTL)).ok().map(|limit| Rule::of(&limit))
    }

    /// True if both have the same algorithm, period and unit.
    pub(crate) fn is_same_limit(&self, other: &Self) -> bool {
        (self.algorithm, &self.period) == (other.algorithm, &other.period)
    }
}

impl fmt::Display for LimitTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm().name())?;
        match self.period() {
            Some(period) => write!(f, " per {period}"),
            None => Ok(()),
        }
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
    let unit = TimeUnit::ALL.iter().position(|unit| *unit == period.unit()).unwrap_or_default() as u8;
    let (multiple, exact) = (period.multiple(), period.micros().is_multiple_of(period.unit().micros()));
    if exact && (1..=31).contains(&multiple) {
        return SmallVec::from_slice(&[unit * 31 + multiple as u8 - 1]);
    }
    let mut code = SmallVec::from_slice(&[LONG_PERIOD]);
    code.extend_from_slice(&period.micros().to_le_bytes()[..7]);
    if limit.algorithm() == Algorithm::CalendarWindow && period.unit() >= TimeUnit::Week {
        // Periods stay below 2^49 µs: the last byte is free to distinguish 60 weeks from 420 days.
        code[7] |= unit << 4;
    }
    code
}
