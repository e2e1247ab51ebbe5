//! Tests which stored states a rule accepts, and until when a process can spend leased units.

use super::*;
use crate::policy::Policy;

const MOST: u64 = MAX_SAFE_INTEGER;

fn rule(notation: &str) -> Rule {
    Rule::of(&Policy::parse(notation).expect("a policy").limits()[0])
}

#[test]
fn numbers_up_to_the_largest_are_possible_and_no_larger_one() {
    let window = |touched, newest, total, older: &[(u64, u64)]| {
        let older = older.iter().copied().collect();
        State::SlidingWindow(Box::new(sliding_window::State { touched, newest, total, older }))
    };
    let log = |entries: &[(u64, u64)]| {
        let entries = entries.iter().copied().collect();
        State::SlidingLog(Box::new(sliding_log::State { entries, ..sliding_log::State::default() }))
    };
    let holds = |touched, total, holds: &[(u64, u64)]| {
        let holds = holds.iter().map(|&(expires, units)| StoredHold { expires, id: 1, units }).collect();
        State::Concurrency(Box::new(concurrency::State { touched, total, holds }))
    };
    let fixed = |opened, used| State::FixedWindow(fixed_window::State { opened, used });
    let counter =
        |touched, previous, current| State::SlidingCounter(sliding_counter::State { touched, previous, current });
    let calendar = |index, used| State::CalendarWindow(calendar_window::State { index, used });
    let calendar_rule = rule("calendar-window 5/day");
    let Rule::CalendarWindow(days) = &calendar_rule else { panic!("{calendar_rule:?}") };
    let last_day = calendar_window::index_of(days.grid, MOST);
    let full = sliding_log::MAX_UNITS;
    let cases = [
        ("fixed-window 5/s", vec![fixed(MOST, MOST)], vec![fixed(MOST + 1, 1), fixed(1, MOST + 1)]),
        (
            "calendar-window 5/day",
            vec![calendar(last_day, MOST)],
            vec![calendar(last_day + 1, 1), calendar(1, MOST + 1)],
        ),
        (
            "sliding-counter 5/s",
            vec![counter(MOST, MOST, MOST)],
            vec![counter(MOST + 1, 1, 1), counter(1, MOST + 1, 1), counter(1, 1, MOST + 1)],
        ),
        (
            "sliding-window 5/s",
            vec![
                window(MOST, 2, 5, &[(MOST, 3)]),
                window(9, 2, 9, &[(3, 3)]),
                window(9, 2, 4, &[(3, 3)]),
                window(9, MOST, MOST, &[]),
            ],
            vec![
                window(MOST + 1, 2, 5, &[(3, 3)]),
                window(9, 2, 5, &[(MOST + 1, 3)]),
                window(9, 2, MOST + 1, &[(3, 3)]),
                window(9, u64::MAX, 5, &[(3, 3)]),
            ],
        ),
        (
            "sliding-log 5/s",
            vec![log(&[(1, 2), (MOST, full)])],
            vec![log(&[(1, 2), (MOST + 1, 3)]), log(&[(1, full + 1)])],
        ),
        (
            "concurrency 5 ttl 1m",
            vec![
                holds(MOST, 5, &[(MOST, 2), (MOST, 3)]),
                holds(1, 4, &[(1, 2), (1, 3)]),
                holds(1, 5, &[(1, u64::MAX), (1, 3)]),
                holds(1, MOST, &[]),
            ],
            vec![holds(MOST + 1, 5, &[(1, 5)]), holds(1, 5, &[(MOST + 1, 5)]), holds(1, MOST + 1, &[])],
        ),
    ];
    for (notation, possible, impossible) in cases {
        let rule = rule(notation);
        possible.iter().for_each(|state| assert!(rule.can_have(state), "{notation} {state:?}"));
        impossible.iter().for_each(|state| assert!(!rule.can_have(state), "{notation} {state:?}"));
        assert!(!rule.can_have(&State::Gcra(meter::State::default())), "{notation}: a state of another algorithm");
    }
}

#[test]
fn a_meter_holds_no_more_than_its_units_and_less_than_an_interval() {
    for notation in ["token-bucket 3/10s", "gcra 3/10s", "leaky-bucket 3/10s"] {
        let rule = rule(notation);
        let &Meter { max_units, interval_units, .. } = rule.meter().expect("a meter");
        let state = |state| match rule {
            Rule::TokenBucket(_) => State::TokenBucket(state),
            Rule::Gcra(_) => State::Gcra(state),
            _ => State::LeakyBucket(state),
        };
        let can = |since, units, fraction| rule.can_have(&state(meter::State { since, units, fraction }));
        assert!(can(MOST, max_units, interval_units - 1), "{notation}");
        assert!(!can(MOST + 1, 1, 0) && !can(1, max_units + 1, 0) && !can(1, 1, interval_units), "{notation}");
        assert!(!rule.can_have(&State::FixedWindow(fixed_window::State::default())), "{notation}");
    }
}

#[test]
fn units_of_windows_end_with_them_and_others_with_their_life() {
    let view = View { resets_at: 17, ..View::default() };
    let hour = 3_600 * SECOND;
    for (notation, ends) in [
        ("fixed-window 5/10s", Some(17)),
        ("calendar-window 5/hour", Some(3 * hour)),
        ("50/s", Some(2 * hour + 345_050_000)),
        ("sliding-counter 5/hour", Some(3 * hour)),
        ("sliding-log 5/s", None),
        ("gcra 5/s", None),
    ] {
        assert_eq!(rule(notation).lease_ends(&view, 2 * hour + 345_000_001), ends, "{notation}");
    }
}
