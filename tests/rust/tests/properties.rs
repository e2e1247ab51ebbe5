//! The promises, checked directly: against a model that shares no code with the rules, and by arithmetic on the admitted
//! units.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate::{Algorithm, CheckOptions, Hold, HoldAnswer, Limiter, Policy};
use tidegate_tests::budget::share;
use tidegate_tests::decision_values::DecisionValues;
use tidegate_tests::model::{JournalEntry, Model};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::strategies::{self, Action};
use tidegate_tests::timed_limiter::{START, TimedLimiter};

const WINDOWS: &[Algorithm] = &[Algorithm::SlidingLog, Algorithm::SlidingWindow];
/// Algorithms that give units back by time alone, so that a wait is exact.
const TIMED: &[Algorithm] = strategies::RATES;

fn cases(cases: u32) -> ProptestConfig {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties.regressions");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..ProptestConfig::default()
    }
}

/// Runs the actions on a limiter and on the model. Every answer must be the same.
fn agree(policy: &Policy, actions: &[(i64, Action)]) -> Result<(), TestCaseError> {
    let mut real = TimedLimiter::default();
    let mut model = Model::new(START);
    let mut policy = policy.clone();
    let mut holds: Vec<(Hold, u64, Policy)> = Vec::new();
    let mut last = None;
    for (index, (pause, action)) in actions.iter().enumerate() {
        let now = real.now.saturating_add_signed(*pause).max(START / 2);
        real.set(now);
        model.set(now);
        let limiter = &real.limiter;
        match action {
            other if !other.fits(&policy) => {}
            Action::Check(cost) => {
                let meta = Some(vec![index as u8]);
                let options = CheckOptions { cost: *cost, meta: meta.clone(), ..CheckOptions::default() };
                let decision = limiter.check_with(&policy, "key", &options).expect("a check");
                let answer = model.check(&policy, "key", *cost, meta.as_deref());
                prop_assert_eq!(DecisionValues::of(&decision), answer.clone(), "{}: {:?}", index, action);
                last = Some((decision, answer.granted, model.receipt()));
            }
            Action::Take(cost) => {
                let meta = Some(vec![index as u8]);
                let options =
                    CheckOptions { cost: *cost, meta: meta.clone(), partial: true, ..CheckOptions::default() };
                let found = limiter.check_with(&policy, "key", &options);
                if policy.limits().iter().any(|limit| !strategies::takes_part(limit.algorithm())) {
                    let refused = found.expect_err("part of a hold or of a place in a queue is nothing");
                    prop_assert_eq!(refused.code(), "config_invalid");
                    continue;
                }
                let answer = model.take(&policy, "key", *cost, meta.as_deref());
                let decision = found.expect("a partial check");
                prop_assert_eq!(DecisionValues::of(&decision), answer.clone(), "{}: {:?}", index, action);
                last = Some((decision, answer.granted, model.receipt()));
            }
            Action::Peek(cost) => {
                prop_assert_eq!(
                    real.peek(&policy, *cost),
                    model.peek(&policy, "key", *cost),
                    "{}: {:?}",
                    index,
                    action
                );
            }
            Action::Charge(cost) => {
                limiter.charge(&policy, "key", *cost).expect("a charge");
                model.charge(&policy, "key", *cost);
            }
            Action::Refund(cost) => {
                real.refund(&policy, *cost);
                model.refund(&policy, "key", *cost);
            }
            Action::Settle(actual) => {
                if let Some((decision, charged, receipt)) = last.take() {
                    limiter.settle(&decision, *actual).expect("a settle");
                    model.settle(&policy, "key", charged, *actual, &receipt);
                    prop_assert!(limiter.settle(&decision, *actual).is_err(), "a Decision is settled once");
                }
            }
            Action::Block(length) => {
                limiter.block(&policy, "key", Duration::from_micros(*length)).expect("a block");
                model.block(&policy, "key", *length);
            }
            Action::Unblock => {
                limiter.unblock(&policy, "key").expect("an unblock");
                model.block(&policy, "key", 0);
            }
            Action::Clear => {
                limiter.clear(&policy, "key").expect("a clear");
                model.clear(&policy, "key");
            }
            Action::Hold(cost) => {
                let (answer, number) = model.hold(&policy, "key", *cost);
                match (limiter.hold(&policy, "key", *cost).expect("a hold"), number) {
                    (HoldAnswer::Held(hold), Some(number)) => {
                        prop_assert_eq!(DecisionValues::of(hold.decision()), answer, "{}: {:?}", index, action);
                        holds.push((hold, number, policy.clone()));
                    }
                    (HoldAnswer::Denied(decision), None) => {
                        prop_assert_eq!(DecisionValues::of(&decision), answer, "{}: {:?}", index, action)
                    }
                    (found, _) => prop_assert!(false, "{}: {:?} gave {:?}, not {:?}", index, action, found, answer),
                }
            }
            Action::Release => {
                if !holds.is_empty() {
                    let (hold, number, policy) = holds.remove(0);
                    drop(hold);
                    model.release(&policy, "key", number);
                }
            }
            Action::CheckAll(one, two) => {
                let entries = [(&policy, "key", *one), (&policy, "other", *two), (&policy, "key", 1)];
                let decision = limiter.check_all(entries).expect("a check_all");
                prop_assert_eq!(DecisionValues::of(&decision), model.check_all(&entries), "{}: {:?}", index, action);
            }
            Action::Journal => {
                let attempts = limiter.journal(&policy, "key").expect("a journal");
                let attempts = attempts.into_iter().map(|one| JournalEntry {
                    at: one.at,
                    allowed: one.allowed,
                    cost: one.cost,
                    meta: one.meta,
                });
                prop_assert_eq!(attempts.collect::<Vec<_>>(), model.journal(&policy, "key"), "{}", index);
            }
            Action::Change(counts) => {
                // Holds and decisions belong to the old policy. The vectors cover that case.
                if holds.is_empty() {
                    policy = strategies::changed(&policy, counts);
                    last = None;
                }
            }
        }
    }
    let (found, expected) = (real.peek(&policy, 1), model.peek(&policy, "key", 1));
    prop_assert_eq!(found, expected, "in the end");
    Ok(())
}

proptest! {
    #![proptest_config(cases(share(800)))]

    #[test]
    fn every_call_answers_as_the_model_does(
        policy in strategies::policy(&Algorithm::ALL, 3, strategies::any_options()),
        actions in proptest::collection::vec((strategies::pause(), strategies::any_action()), 1..40),
    ) {
        let actions: Vec<(i64, Action)> = actions.into_iter().map(|(pause, action)| (pause as i64, action)).collect();
        agree(&policy, &actions)?;
    }

    #[test]
    fn time_does_not_run_backwards(
        policy in strategies::policy(strategies::RATES, 2, strategies::plain()),
        actions in proptest::collection::vec((strategies::pause(), any::<bool>(), strategies::consuming_action()), 1..40),
    ) {
        let actions: Vec<(i64, Action)> = actions
            .into_iter()
            .map(|(pause, back, action)| (if back { -(pause as i64) } else { pause as i64 }, action))
            .collect();
        agree(&policy, &actions)?;
    }
}

/// Panics when more than `count` units were admitted in some interval (t - period, t].
fn assert_never_more(admitted: &[(u64, u64)], count: u64, period: u64) {
    for (end, _) in admitted {
        let within = |at: u64| at <= *end && at + period > *end;
        let units: u64 = admitted.iter().filter(|(at, _)| within(*at)).map(|(_, units)| units).sum();
        assert!(units <= count, "{units} of {count} in the {period} µs up to {end}: {admitted:?}");
    }
}

proptest! {
    #![proptest_config(cases(share(1_200)))]

    #[test]
    fn no_window_holds_more_than_n(
        policy in strategies::policy(WINDOWS, 1, strategies::plain()),
        checks in proptest::collection::vec((strategies::pause(), 1u64..6), 1..150),
    ) {
        let limit = &policy.limits()[0];
        let mut real = TimedLimiter::default();
        let mut admitted = Vec::new();
        for (pause, cost) in checks {
            // After longer pauses no earlier unit would count.
            real.pass(pause % (2 * limit.period().micros() / limit.count().clamp(1, 50)));
            if real.check(&policy, cost).allowed {
                admitted.push((real.now, cost));
            }
        }
        assert_never_more(&admitted, limit.count(), limit.period().micros());
    }

    #[test]
    fn a_wait_is_exact(
        policy in strategies::policy(TIMED, 3, strategies::plain()),
        before in proptest::collection::vec((strategies::pause(), strategies::cost()), 1..30),
        cost in strategies::cost(),
    ) {
        let mut real = TimedLimiter::default();
        for (pause, cost) in before {
            real.pass(pause);
            real.check(&policy, cost);
        }
        // Until it is denied.
        for _ in 0..60 {
            if !real.check(&policy, cost).allowed {
                break;
            }
        }
        let answer = real.peek(&policy, cost);
        let most = policy.limits().iter().map(tidegate::Limit::capacity).min().unwrap_or(0);
        prop_assert_eq!(answer.retry_after.is_none(), cost > most, "a check is never admitted exactly when its cost exceeds the capacity");
        if let Some(wait) = answer.retry_after.filter(|_| !answer.allowed) {
            prop_assert!(wait > 0);
            let now = real.now;
            for earlier in [1, 2_000] {
                real.set(now + wait.saturating_sub(earlier));
                prop_assert!(!real.peek(&policy, cost).allowed, "{} µs before", earlier);
            }
            real.set(now + wait);
            prop_assert!(real.peek(&policy, cost).allowed);
            prop_assert!(real.check(&policy, cost).allowed);
        }
    }

    #[test]
    fn the_next_check_is_admitted_when_an_allowed_one_said(
        policy in strategies::policy(TIMED, 3, strategies::plain()),
        pauses in proptest::collection::vec(0u64..20_000, 0..12),
        cost in 1u64..8,
    ) {
        let mut real = TimedLimiter::default();
        for pause in pauses {
            real.pass(pause);
            real.check(&policy, 1);
        }
        let answer = real.check(&policy, cost);
        let most = policy.limits().iter().map(tidegate::Limit::capacity).min().unwrap_or(0);
        prop_assert_eq!(answer.next_after.is_none(), cost > most);
        if let Some(next) = answer.next_after {
            let now = real.now;
            for earlier in [1, 2_000].into_iter().filter(|earlier| *earlier <= next) {
                real.set(now + next - earlier);
                prop_assert!(!real.peek(&policy, cost).allowed, "{} µs before {}", earlier, next);
            }
            real.set(now + next);
            prop_assert!(real.check(&policy, cost).allowed, "{:?}", answer);
        }
    }

    #[test]
    fn a_reset_stays_where_it_is(
        // A bucket with `initial` starts again when it has been full for long.
        policy in strategies::policy(strategies::RATES, 1, strategies::plain())
            .prop_filter("no initial", |policy| policy.limits()[0].initial().is_none()),
        costs in proptest::collection::vec(1u64..6, 1..20),
        pauses in proptest::collection::vec(strategies::pause(), 1..20),
    ) {
        let mut real = TimedLimiter::default();
        for cost in costs {
            real.check(&policy, cost);
        }
        let first = real.peek(&policy, 1);
        let resets_at = real.now + first.reset_after;
        for pause in pauses {
            real.pass(pause);
            let answer = real.peek(&policy, 1);
            prop_assert_eq!(answer.reset_after, resets_at.saturating_sub(real.now));
            if policy.limits()[0].capacity() == 0 {
                prop_assert!(!real.check(&policy, 1).allowed);
            }
            if answer.reset_after == 0 {
                break;
            }
            prop_assert!(answer.remaining >= first.remaining);
        }
    }

    #[test]
    fn refunds_make_no_credit(
        policy in strategies::policy(strategies::RATES, 2, strategies::plain()),
        actions in proptest::collection::vec((any::<bool>(), 1u64..12), 1..60),
    ) {
        // All calls come at one moment. The units in use are the admitted less the refunded ones, and at most the capacity.
        let real = TimedLimiter::default();
        let fits = policy.limits().iter().map(tidegate::Limit::capacity).min().unwrap_or(0);
        let mut out = 0;
        for (checks, units) in actions {
            if !checks {
                real.refund(&policy, units);
                out -= units.min(out);
            } else if real.check(&policy, units).allowed {
                out += units;
            }
            prop_assert!(out <= fits, "{} of {}", out, fits);
        }
        for limit in real.peek(&policy, 1).limits {
            prop_assert!(limit.remaining <= limit.limit - out, "{:?} with {} out", limit, out);
        }
    }
}

/// Several threads check as fast as they can, by the clock of the store. The times in its answers must fit the limit.
fn live(store: &str) {
    for notation in ["sliding-log 40/20ms", "sliding-window 40/20ms"] {
        let builder = Limiter::builder().store(store).timeout(Duration::from_secs(10)).prefix("live");
        let limiter = builder.build().expect("a limiter");
        let policy = Policy::parse(notation).expect("a policy");
        let mut admitted: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (limiter, policy) = (&limiter, &policy);
                    scope.spawn(move || {
                        let mut admitted = Vec::new();
                        for check in 0..1_500u64 {
                            let cost = (check + thread) % 3 + 1;
                            let decision = limiter.check_n(policy, "key", cost).expect("a check");
                            if decision.allowed() {
                                admitted.push((decision.at().as_micros() as u64, cost));
                            }
                        }
                        admitted
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
        });
        admitted.sort_unstable();
        assert!(!admitted.is_empty());
        assert_never_more(&admitted, 40, 20_000);
    }
}

#[test]
fn no_window_of_live_traffic_holds_more_than_n() {
    live("memory://");
    live(Servers::start(Kind::Single).url());
}

proptest! {
    #![proptest_config(cases(share(1_200)))]

    #[test]
    fn calendars_of_ones_own_are_those_that_the_model_counts_up(
        limit in strategies::own_calendar(),
        actions in proptest::collection::vec((strategies::pause(), strategies::any_action()), 1..25),
    ) {
        let policy = Policy::new(vec![limit], tidegate::Options::default()).expect("a policy").named("p").expect("a name");
        let same = |action: &Action| !matches!(action, Action::Change(_));
        let actions = actions.into_iter().filter(|(_, action)| same(action)).map(|(pause, action)| (pause as i64, action));
        agree(&policy, &actions.collect::<Vec<_>>())?;
    }

    /// The units that a version admits in a window of its calendar, plus those of other versions later in it, are at most its count.
    #[test]
    fn never_more_between_two_edges_while_calendars_change(
        limits in proptest::collection::vec(strategies::own_calendar(), 2..4),
        calls in proptest::collection::vec((0usize..3, 0u64..20 * 3_600_000_000, 1u64..4), 1..60),
    ) {
        let mut real = TimedLimiter::default();
        let plain = Policy::parse("calendar-window 5/day").expect("a policy").limits()[0].period();
        let versions: Vec<Policy> = limits.iter().enumerate().map(|(at, limit)| {
            let own = tidegate::Limit::new(Algorithm::CalendarWindow, 5, plain).expect("a limit");
            let own = match (at, limit.zone()) {
                (0, _) | (_, None) => own,
                (_, Some(zone)) => own.with_zone(zone).expect("a zone"),
            };
            let time = limit.anchor().map(ToString::to_string).unwrap_or_default();
            let own = match time.find("at ") {
                Some(from) if at > 0 => own.with_anchor(time[from..].parse().expect("a time")).expect("an anchor"),
                _ => own,
            };
            Policy::new(vec![own], tidegate::Options::default()).expect("a policy").named("p").expect("a name")
        }).collect();
        let mut admitted: Vec<(u64, usize, u64)> = Vec::new();
        for (version, pause, cost) in calls {
            real.pass(pause);
            let version = version % versions.len();
            if real.limiter.check_with(&versions[version], "key", &tidegate::Cost::from(cost).into()).expect("a check").allowed() {
                admitted.push((real.now, version, cost));
            }
        }
        for (at, version, _) in &admitted {
            let (_, ends) = tidegate_tests::model::window(&versions[*version].limits()[0], *at);
            let units: u64 = admitted.iter().filter(|(other, ..)| other >= at && *other < ends).map(|(.., cost)| cost).sum();
            prop_assert!(units <= 5, "{} of version {} from {}: {:?}", units, version, at, admitted);
        }
    }
}
