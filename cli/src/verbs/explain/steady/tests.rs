//! Compares the steady use with the real limiter.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock};

use super::*;
use crate::verbs::explain::greedy::START;

/// True if all units at this pace are admitted, from several beginnings.
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
