//! Compares the stated bursts with a search through every sequence of calls, on the real limiter.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock, Policy};

use super::super::greedy::START;
use super::{Burst, worst};

/// The most units in any window over all sequences of calls. A sequence takes nothing, one unit or all free units at
/// each moment. The moments are in microseconds.
fn searched(policy: &Policy, window: u64, moments: &[u64]) -> u64 {
    let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
    let limiter = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter");
    let mut most = 0;
    for sequence in 0..3_u32.pow(moments.len() as u32) {
        let key = format!("sequence {sequence}");
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        let mut choices = sequence;
        for moment in moments {
            clock.set(Duration::from_micros(START + moment));
            let units = match choices % 3 {
                0 => 0,
                1 => 1,
                _ => {
                    let room = limiter.peek(policy, &key, 1).expect("memory");
                    room.limits().map(|limit| limit.remaining).min().unwrap_or(0)
                }
            };
            choices /= 3;
            if units > 0 && limiter.check_n(policy, &key, units).expect("memory").allowed() {
                admitted.push((*moment, units));
            }
        }
        limiter.clear(policy, &key).expect("memory");
        for (begin, _) in &admitted {
            let inside = admitted.iter().filter(|(at, _)| (*begin..begin + window).contains(at));
            most = most.max(inside.map(|(_, units)| units).sum());
        }
    }
    most
}

#[track_caller]
fn agrees(notation: &str, moments: &[u64]) {
    let policy = Policy::parse(notation).expect(notation);
    for Burst { window, found, bound, .. } in worst(&policy).expect(notation) {
        let searched = searched(&policy, window, moments);
        assert_eq!((found, bound), (Some(searched), searched), "{notation} in {window} µs");
    }
}

const MS: u64 = 1_000;

#[test]
fn windows_admit_twice_around_an_edge() {
    // The edge is at 16 ms, of a window that one unit opened at 12 ms.
    let around = [12 * MS, 13 * MS, 16 * MS - 1, 16 * MS, 17 * MS, 20 * MS - 2, 20 * MS - 1, 20 * MS];
    agrees("fixed-window 3/4ms", &around);
    agrees("calendar-window 3/4ms", &around);
    agrees("sliding-counter 3/4ms", &around);
}

#[test]
fn sliding_limits_admit_their_count() {
    let moments = [0, MS, 2 * MS, 4 * MS - 1, 4 * MS, 5 * MS, 6 * MS, 8 * MS];
    agrees("sliding-log 3/4ms", &moments);
    agrees("3/4ms", &moments);
}

#[test]
fn buckets_admit_their_burst_and_what_is_refilled() {
    let moments = [0, MS, 2 * MS, 3 * MS, 4 * MS - 1, 4 * MS, 5 * MS, 6 * MS];
    agrees("gcra 4/4ms burst 2", &moments);
    agrees("token-bucket 4/4ms", &moments);
    agrees("leaky-bucket 4/4ms burst 3", &moments);
}

#[test]
fn limits_together_admit_what_each_admits() {
    agrees(
        "fixed-window 4/8ms; sliding-log 2/2ms",
        &[8 * MS, 12 * MS - 1, 14 * MS - 1, 16 * MS - 1, 16 * MS, 16 * MS + 1, 18 * MS - 1, 18 * MS + 1, 20 * MS + 1],
    );
    agrees("sliding-log 3/4ms; gcra 4/4ms burst 2", &[0, MS, 2 * MS, 3 * MS, 4 * MS - 1, 4 * MS, 5 * MS, 6 * MS]);
}

#[test]
fn a_month_of_the_calendar_may_be_shorter_than_thirty_days() {
    let policy = Policy::parse("calendar-window 10/month").expect("a policy");
    // The end of January, all of February and the beginning of March.
    assert_eq!(worst(&policy).expect("bursts").last().map(|burst| burst.bound), Some(30));
}

#[test]
fn units_in_progress_count_at_one_moment() {
    let policy = Policy::parse("20/minute; concurrency 8").expect("a policy");
    let bursts: Vec<u64> = worst(&policy).expect("bursts").iter().map(|burst| burst.bound).collect();
    assert_eq!(bursts, [8, 20]);
}

#[test]
fn a_count_of_zero_admits_nothing() {
    for notation in ["0/minute", "gcra 5/s burst 0", "20/minute; fixed-window 0/s"] {
        let policy = Policy::parse(notation).expect(notation);
        let bursts = worst(&policy).expect(notation);
        assert!(bursts.iter().all(|burst| (burst.found, burst.bound) == (Some(0), 0)), "{notation}: {bursts:?}");
    }
}
