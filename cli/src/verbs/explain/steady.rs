//! The smoothest steady use: one unit at a time, evenly, as fast as it is never denied, whenever it begins.

use tidegate::{Algorithm, Limit, Policy, Unit};

use super::greedy::over_time;

/// One unit every so many microseconds, and the limit that allows no shorter pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steady {
    pub(super) interval: u64,
    pub(super) limit: usize,
}

/// The steady use of a policy; `None` when nothing is admitted, or nothing counts over time.
pub(super) fn smoothest(policy: &Policy) -> Option<Steady> {
    let limits = over_time(policy);
    let intervals: Option<Vec<Steady>> = limits
        .iter()
        .map(|(index, limit)| interval(limit).map(|interval| Steady { interval, limit: *index }))
        .collect();
    intervals?.into_iter().max_by_key(|steady| steady.interval)
}

/// The shortest pause between units that a limit never denies.
fn interval(limit: &Limit) -> Option<u64> {
    let (count, period) = (limit.count(), limit.period().micros());
    if limit.capacity() == 0 {
        return None;
    }
    let interval = match limit.algorithm() {
        // A granule counts until its last instant has left the window.
        Algorithm::SlidingWindow => (period + period / u64::from(limit.precision()) - 1).div_ceil(count),
        // At exactly this rate the estimate is full when a window begins.
        Algorithm::SlidingCounter => period / count + 1,
        Algorithm::CalendarWindow => longest_window(limit).div_ceil(count),
        _ => period.div_ceil(count),
    };
    Some(interval.max(1))
}

/// The longest window of the calendar that a period means.
fn longest_window(limit: &Limit) -> u64 {
    let (period, day) = (limit.period(), Unit::Day.micros());
    match period.unit() {
        Unit::Month => period.multiple() * 31 * day,
        Unit::Year => period.multiple() * 366 * day,
        _ => period.micros(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tidegate::{Limiter, ManualClock};

    use super::*;
    use crate::verbs::explain::greedy::START;

    /// Whether units at this pace are all admitted, from several beginnings.
    fn is_never_denied(policy: &Policy, interval: u64) -> bool {
        let period = policy.limits().iter().map(|limit| limit.period().micros()).max().expect("a limit");
        let phases = [0, 1, 2, 3, 7, 11].map(|part| period * part / 13).into_iter().chain([period - 1]);
        phases.into_iter().all(|phase| {
            let clock = Arc::new(ManualClock::new(Duration::from_micros(START + phase)));
            let limiter = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter");
            let units = (6 * period / interval).clamp(1_000, 4_000);
            (0..units).all(|_| {
                let allowed = limiter.check(policy, "key").expect("memory").allowed();
                clock.advance(Duration::from_micros(interval));
                allowed
            })
        })
    }

    #[test]
    fn the_steady_use_is_never_denied_and_hardly_any_faster_is() {
        for notation in [
            "fixed-window 7/s",
            "calendar-window 7/minute",
            "sliding-log 7/s",
            "20/minute",
            "1/s",
            "sliding-counter 7/s",
            "sliding-counter 1/s",
            "token-bucket 7/s burst 3",
            "gcra 10/s burst 1",
            "leaky-bucket 7/s",
            "20/minute; 5/3s",
            "100/hour; gcra 3/minute burst 2",
        ] {
            let policy = Policy::parse(notation).expect(notation);
            let steady = smoothest(&policy).expect(notation).interval;
            assert!(is_never_denied(&policy, steady), "{notation}: one every {steady} µs is denied");
            let faster = steady - steady.div_ceil(100);
            assert!(!is_never_denied(&policy, faster), "{notation}: one every {faster} µs is admitted");
        }
    }

    #[test]
    fn nothing_is_steady_where_nothing_is_admitted() {
        for notation in ["0/minute", "gcra 5/s burst 0", "concurrency 3"] {
            assert_eq!(smoothest(&Policy::parse(notation).expect(notation)), None, "{notation}");
        }
    }
}
