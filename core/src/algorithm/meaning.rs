//! The facts about a limit that follow from its numbers alone, whatever its usage.

use super::lease::{ADDED_PART, LONGEST_LEASE};
use super::limit::{AlgorithmKind, Limit};
use super::period::TimeUnit;

/// The meaning of a limit's numbers in one algorithm. A default fits all algorithms of a kind, unless one of them
/// overrides it.
pub(super) trait Meaning {
    const KIND: AlgorithmKind;

    /// A sentence that explains the algorithm. Words in braces stand for the numbers of a limit.
    const WORDS: &'static str;

    /// The rule of a limit.
    fn of(limit: &Limit) -> Self;

    /// The shortest and the longest real length of its period.
    fn lengths(limit: &Limit) -> (u64, u64) {
        (limit.period().micros(), limit.period().micros())
    }

    /// For how many microseconds a process can spend units that it took in advance, at most. 0 if it cannot take any. If that
    /// time counts on top of the period, it is a small part of it.
    fn lease_life(limit: &Limit) -> u64 {
        let period = limit.period().micros();
        match Self::KIND {
            AlgorithmKind::Windows => LONGEST_LEASE,
            AlgorithmKind::MovingWindow => period / ADDED_PART,
            AlgorithmKind::Bucket => {
                let drains = u128::from(limit.capacity()) * u128::from(period) / u128::from(limit.count().max(1));
                u64::try_from(drains / u128::from(ADDED_PART)).unwrap_or(LONGEST_LEASE)
            }
            AlgorithmKind::Queue | AlgorithmKind::Held => 0,
        }
    }

    /// The most that any sequence of calls gets within `window` microseconds, at least two. The last moment does not count.
    fn most_in(limit: &Limit, window: u64) -> u64 {
        let (count, period) = (limit.count(), limit.period().micros());
        match Self::KIND {
            AlgorithmKind::Windows => count.saturating_mul((window - 2) / period + 2),
            AlgorithmKind::MovingWindow => count.saturating_mul(window.div_ceil(period)),
            AlgorithmKind::Bucket | AlgorithmKind::Queue => {
                let refilled = u128::from(window - 1) * u128::from(count) / u128::from(period);
                limit.capacity().saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX))
            }
            // The length of a hold limits nothing.
            AlgorithmKind::Held => u64::MAX,
        }
    }

    /// The shortest pause, in microseconds, at which no unit is ever denied.
    fn steady(limit: &Limit) -> u64 {
        Self::lengths(limit).1.div_ceil(limit.count())
    }

    /// Warns about numbers that probably do not do what their author meant.
    fn lint(limit: &Limit, warn: &mut dyn FnMut(String)) {
        if Self::KIND != AlgorithmKind::Held {
            lint_nominal(limit, warn);
        }
    }
}

/// Warns about months and years, which outside of the calendar are only lengths.
pub(super) fn lint_nominal(limit: &Limit, warn: &mut dyn FnMut(String)) {
    let algorithm = limit.algorithm();
    match limit.period().unit() {
        TimeUnit::Month => {
            warn(format!("a month is 30 days in {algorithm}: use calendar-window for real months, or write it in days"))
        }
        TimeUnit::Year => {
            warn(format!("a year is 360 days in {algorithm}: use calendar-window for real years, or write 365 days"))
        }
        _ => {}
    }
}
