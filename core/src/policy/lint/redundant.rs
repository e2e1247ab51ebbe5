//! Limits that another limit of the same policy makes redundant.
//!
//! A limit is redundant when it admits everything that another limit admits. The sums below are upper bounds, so that a
//! warning is never wrong about the nominal numbers of the limits.

use super::super::limit::{Algorithm, Limit};
use super::super::period::{DAY, Unit};

/// Warns of every limit that never decides, once.
pub(super) fn redundant_limits(limits: &[Limit], mut warn: impl FnMut(usize, String)) {
    for (at, limit) in limits.iter().enumerate() {
        let by = limits.iter().enumerate().find(|(other_at, other)| {
            // Of two equal limits the second is the one to remove.
            *other_at != at && covers(other, limit) && (*other_at < at || !covers(limit, other))
        });
        let Some((_, other)) = by else { continue };
        let advice = match peak(other, longest(limit)) {
            Some(most) if !limit.algorithm().has_burst() && most <= u128::from(limit.count()) => format!(
                "{other} never lets more than {most} pass in that time; remove it, or lower its count below {most}"
            ),
            _ => format!("{other} is always the stricter one; remove it, or make it stricter"),
        };
        warn(at, format!("{limit} never decides anything: {advice}"));
    }
}

/// Whether everything that `strict` admits, `loose` admits too.
fn covers(strict: &Limit, loose: &Limit) -> bool {
    use Algorithm::Concurrency;
    // Limits that always deny have a warning of their own.
    if strict.capacity() == 0 || loose.capacity() == 0 {
        return false;
    }
    if strict == loose {
        return true;
    }
    match (strict.algorithm(), loose.algorithm()) {
        // A hold that is not renewed stays at least as long in the stricter one.
        (Concurrency, Concurrency) => {
            strict.count() <= loose.count() && strict.period().micros() >= loose.period().micros()
        }
        (Concurrency, _) | (_, Concurrency) => false,
        (_, kind) if kind.has_burst() => {
            let rate = |limit: &Limit, other: &Limit| u128::from(limit.count()) * u128::from(other.period().micros());
            let at_once = peak(strict, 0).is_some_and(|most| most <= u128::from(loose.capacity()));
            // A leaky bucket also delays its callers, so only another leaky bucket replaces it.
            let same_shape = kind != Algorithm::LeakyBucket || strict.algorithm() == Algorithm::LeakyBucket;
            at_once && rate(strict, loose) <= rate(loose, strict) && same_shape
        }
        (_, _) => {
            peak(strict, longest(loose)).is_some_and(|most| most <= u128::from(loose.count())) || nested(strict, loose)
        }
    }
}

/// The most units that a limit admits within any `micros` microseconds; `None` for `concurrency`.
fn peak(limit: &Limit, micros: u64) -> Option<u128> {
    let (count, period) = (u128::from(limit.count()), u128::from(shortest(limit)));
    let micros = u128::from(micros);
    match limit.algorithm() {
        Algorithm::SlidingWindow | Algorithm::SlidingLog => Some(count * micros.div_ceil(period).max(1)),
        // They may begin just before a window ends, so that they overlap one window more.
        Algorithm::FixedWindow | Algorithm::CalendarWindow | Algorithm::SlidingCounter => {
            Some(count * (micros.div_ceil(period) + 1))
        }
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            Some(u128::from(limit.capacity()) + count * micros / period)
        }
        Algorithm::Concurrency => None,
    }
}

/// Whether the longer window consists of whole shorter windows of the same kind. For `fixed-window` that is so when
/// traffic is steady, and otherwise it hardly matters which of the two decides.
fn nested(strict: &Limit, loose: &Limit) -> bool {
    let alike = strict.algorithm() == loose.algorithm()
        && matches!(strict.algorithm(), Algorithm::FixedWindow | Algorithm::CalendarWindow | Algorithm::SlidingCounter);
    let (short, long) = (strict.period(), loose.period());
    // A week may overlap two months or two years.
    let overlaps =
        strict.algorithm() == Algorithm::CalendarWindow && short.unit() == Unit::Week && long.unit() > Unit::Week;
    if !alike || overlaps {
        return false;
    }
    let windows = if short.unit() >= Unit::Month && long.unit() >= Unit::Month {
        long.micros().div_ceil(short.micros())
    } else {
        longest(loose).div_ceil(short.micros())
    };
    u128::from(strict.count()) * u128::from(windows.max(1)) <= u128::from(loose.count())
}

/// The longest that a window really is: months and years of the calendar differ from their nominal length.
fn longest(limit: &Limit) -> u64 {
    calendar(limit, 31, 366)
}

/// The shortest that a window really is.
fn shortest(limit: &Limit) -> u64 {
    calendar(limit, 28, 365)
}

fn calendar(limit: &Limit, month: u64, year: u64) -> u64 {
    let period = limit.period();
    match (limit.algorithm(), period.unit()) {
        (Algorithm::CalendarWindow, Unit::Month) => period.multiple() * month * DAY,
        (Algorithm::CalendarWindow, Unit::Year) => period.multiple() * year * DAY,
        _ => period.micros(),
    }
}
