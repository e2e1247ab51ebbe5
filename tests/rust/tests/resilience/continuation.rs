//! The knowledge of `on_store_error` = `local`: random calls go to a real server and to the model. Then the server is
//! lost, and both go on. The process never forgets usage that the store's answers gave, in the caller's favour.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tidegate::{Algorithm, CheckOptions, Decision, Hold, HoldAnswer, Limiter, ManualClock, Policy, Source};
use tidegate_tests::budget::share;
use tidegate_tests::decision_values::DecisionValues;
use tidegate_tests::model::{Model, Receipt};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::strategies::{self, Action};

const START: u64 = 1_704_067_200_000_000;
/// Every algorithm with a state that the store's answers give completely. A `sliding-log` stays on the server.
const KNOWN: &[Algorithm] = &[
    Algorithm::FixedWindow,
    Algorithm::CalendarWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
    Algorithm::Concurrency,
];
const LOG: &[Algorithm] = &[Algorithm::SlidingLog];

static SERVER: LazyLock<Servers> = LazyLock::new(|| Servers::start(Kind::Single));

fn cases(cases: u32) -> ProptestConfig {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/resilience/continuation.regressions");
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..ProptestConfig::default()
    }
}

/// A limiter on the server, and the model, at one time.
struct Both {
    limiter: Limiter,
    clock: Arc<ManualClock>,
    proxy: Proxy,
    model: Model,
    policy: Policy,
    /// Holds, their numbers in the model, and the policy they were taken with.
    holds: Vec<(Hold, u64, Policy)>,
    /// The last check, its charge and its receipt.
    last: Option<(Decision, u64, Receipt)>,
}

impl Both {
    fn new(policy: &Policy, deny_cache: bool) -> Self {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let proxy = Proxy::to(SERVER.port(0));
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = Limiter::builder()
            .store(format!("redis://127.0.0.1:{}", proxy.port()))
            .prefix(format!("go on {}-{number}", std::process::id()))
            .timeout(Duration::from_secs(20))
            .deny_cache(Duration::from_secs(deny_cache.into()))
            .clock(Arc::clone(&clock))
            .build()
            .expect("a limiter");
        let (model, policy) = (Model::new(START), policy.clone());
        Self { limiter, clock, proxy, model, policy, holds: Vec::new(), last: None }
    }

    fn lose_the_store(&self) {
        self.proxy.set(Condition::Refuse);
        // A call that is made now may still reach the server.
        while self.proxy.open() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pass(&mut self, time: u64) {
        let now = self.model.now() + time;
        self.clock.set(Duration::from_micros(now));
        self.model.set(now);
    }

    /// Makes one call on both, and returns the answers of both.
    fn call(&mut self, action: &Action) -> Option<(DecisionValues, DecisionValues)> {
        let (limiter, model, policy) = (&self.limiter, &mut self.model, &self.policy);
        match action {
            other if !other.fits(policy) => {}
            Action::Check(cost) => {
                let options = CheckOptions { cost: *cost, ..CheckOptions::default() };
                let decision = limiter.check_with(policy, "key", &options).expect("a check");
                let (mut found, expected) = (DecisionValues::of(&decision), model.check(policy, "key", *cost, None));
                if decision.source() == Source::DenyCache
                    && (found.allowed, found.retry_after) == (false, expected.retry_after)
                {
                    // The deny cache promises the denial and its end. Other tests check its numbers of each limit.
                    found = expected.clone();
                }
                let charged = if found.allowed && !found.shadow { *cost } else { 0 };
                self.last = Some((decision, charged, model.receipt()));
                return Some((found, expected));
            }
            Action::Take(cost) => {
                let options = CheckOptions { cost: *cost, partial: true, ..CheckOptions::default() };
                // Not every policy can grant part of a cost. Such a policy refuses before and during the outage.
                let Ok(decision) = limiter.check_with(policy, "key", &options) else { return None };
                let (mut found, expected) = (DecisionValues::of(&decision), model.take(policy, "key", *cost, None));
                if decision.source() == Source::DenyCache
                    && (found.granted, found.retry_after) == (expected.granted, expected.retry_after)
                {
                    found = expected.clone();
                }
                self.last = Some((decision, expected.granted, model.receipt()));
                return Some((found, expected));
            }
            Action::Peek(cost) => {
                let decision = limiter.peek(policy, "key", *cost).expect("a peek");
                return Some((DecisionValues::of(&decision), model.peek(policy, "key", *cost)));
            }
            Action::Charge(cost) => {
                limiter.charge(policy, "key", *cost).expect("a charge");
                model.charge(policy, "key", *cost);
            }
            Action::Refund(cost) => {
                limiter.refund(policy, "key", *cost).expect("a refund");
                model.refund(policy, "key", *cost);
            }
            Action::Settle(actual) => {
                if let Some((decision, charged, receipt)) = self.last.take() {
                    limiter.settle(&decision, *actual).expect("a settle");
                    model.settle(policy, "key", charged, *actual, &receipt);
                }
            }
            Action::Block(length) => {
                limiter.block(policy, "key", Duration::from_micros(*length)).expect("a block");
                model.block(policy, "key", *length);
            }
            Action::Unblock => {
                limiter.unblock(policy, "key").expect("an unblock");
                model.block(policy, "key", 0);
            }
            Action::Clear => {
                limiter.clear(policy, "key").expect("a clear");
                model.clear(policy, "key");
            }
            Action::Hold(cost) => {
                let (expected, number) = model.hold(policy, "key", *cost);
                let answer = limiter.hold(policy, "key", *cost).expect("a hold");
                let found = DecisionValues::of(answer.decision());
                if let (HoldAnswer::Held(hold), Some(number)) = (answer, number) {
                    self.holds.push((hold, number, policy.clone()));
                }
                return Some((found, expected));
            }
            Action::Release => {
                if !self.holds.is_empty() {
                    let (hold, number, policy) = self.holds.remove(0);
                    drop(hold);
                    model.release(&policy, "key", number);
                }
            }
            Action::CheckAll(one, two) => {
                let entries = [(policy, "key", *one), (policy, "other", *two), (policy, "key", 1)];
                let decision = limiter.check_all(entries).expect("a check_all");
                return Some((DecisionValues::of(&decision), model.check_all(&entries)));
            }
            // Holds belong to the old policy, as in `properties.rs`.
            Action::Change(counts) if self.holds.is_empty() => {
                (self.policy, self.last) = (strategies::changed(&self.policy, counts), None);
            }
            Action::Change(_) | Action::Journal => {}
        }
        None
    }
}

/// Calls that the store alone answers.
fn is_administrative(action: &Action) -> bool {
    matches!(action, Action::Block(_) | Action::Unblock | Action::Clear | Action::Journal)
}

type Steps = Vec<(u64, Action)>;

fn steps(most: usize) -> impl Strategy<Value = Steps> {
    // More debt than elsewhere.
    let action = prop_oneof![
        4 => strategies::any_action(),
        1 => strategies::cost().prop_map(Action::Charge),
        1 => (1u64..40).prop_map(Action::Charge),
    ];
    proptest::collection::vec((strategies::pause(), action), 1..most)
}

proptest! {
    #![proptest_config(cases(share(600)))]

    #[test]
    fn the_fallback_answers_as_the_store_would_have(
        policy in strategies::policy(KNOWN, 3, strategies::any_options()),
        before in steps(16),
        after in steps(10),
        deny_cache in any::<bool>(),
    ) {
        let mut both = Both::new(&policy, deny_cache);
        for (index, (pause, action)) in before.iter().enumerate() {
            both.pass(*pause);
            if let Some((found, expected)) = both.call(action) {
                prop_assert_eq!(found, expected, "by the store, {}: {:?}", index, action);
            }
        }
        both.lose_the_store();
        for (index, (pause, action)) in after.iter().filter(|(_, action)| !is_administrative(action)).enumerate() {
            both.pass(*pause);
            if let Some((found, expected)) = both.call(action) {
                prop_assert_eq!(found, expected, "by the fallback, {}: {:?}", index, action);
            }
        }
        let last = both.limiter.peek(&both.policy, "key", 1).expect("a peek");
        prop_assert_eq!(last.source(), Source::Fallback);
        prop_assert_eq!(DecisionValues::of(&last), both.model.peek(&both.policy, "key", 1), "in the end");
    }

    /// A `sliding-log` stays on the server: an answer gives the used units, the moment at which the check is admitted, and
    /// the end of the log. So the fallback may deny for longer, but it never admits a call that the store would have denied.
    #[test]
    fn a_log_is_never_forgotten(
        policy in strategies::policy(LOG, 3, strategies::plain()),
        before in steps(16),
        after in steps(14),
    ) {
        let mut both = Both::new(&policy, false);
        for (pause, action) in &before {
            both.pass(*pause);
            both.call(action);
        }
        both.lose_the_store();
        for (index, (pause, action)) in after.iter().filter(|(_, action)| !is_administrative(action)).enumerate() {
            both.pass(*pause);
            match action {
                Action::Check(cost) | Action::Take(cost) | Action::Hold(cost) | Action::CheckAll(cost, _) => {
                    let partial = matches!(action, Action::Take(_));
                    let options = CheckOptions { cost: *cost, partial, ..CheckOptions::default() };
                    let found = both.limiter.check_with(&both.policy, "key", &options).expect("a check");
                    if found.granted() > 0 {
                        let expected = both.model.check(&both.policy, "key", found.granted(), None);
                        prop_assert!(expected.allowed, "{}: {:?} {:?} {:?}", index, action, found, expected);
                    }
                }
                Action::Settle(_) | Action::Release => {}
                action => {
                    both.call(action);
                }
            }
            for cost in [1, 3] {
                let found = DecisionValues::of(&both.limiter.peek(&both.policy, "key", cost).expect("a peek"));
                let expected = both.model.peek(&both.policy, "key", cost);
                for (found, expected) in found.limits.iter().zip(&expected.limits) {
                    prop_assert!(found.remaining <= expected.remaining, "{}: {:?} {:?}", index, found, expected);
                    let wait = |wait: Option<u64>| wait.unwrap_or(u64::MAX);
                    prop_assert!(
                        found.retry_after == Some(0) || wait(found.retry_after) >= wait(expected.retry_after),
                        "{}: {:?} {:?}", index, found, expected
                    );
                }
            }
        }
    }
}

/// The case of the report: a debt of half the limit.
#[test]
fn the_wait_of_a_debt_is_the_stores() {
    let policies = [
        ("fixed-window 10/20s", 15),
        ("calendar-window 10/minute", 15),
        ("sliding-window 10/20s", 15),
        ("sliding-log 10/20s", 15),
        ("sliding-counter 10/20s", 15),
        ("token-bucket 10/20s", 15),
        ("gcra 10/20s", 15),
        ("leaky-bucket 10/20s", 15),
        ("concurrency 10 ttl 20s", 15),
        ("sliding-counter 10/20s; gcra 12/min; fixed-window 11/10s", 40),
    ];
    for (notation, units) in policies {
        let mut both = Both::new(&Policy::parse(notation).expect("a policy").named("debts").expect("a name"), false);
        let (limiter, policy) = (&both.limiter, &both.policy);
        limiter.charge(policy, "key", units).expect("a charge");
        let by_store = limiter.peek(policy, "key", 1).expect("a peek");
        assert_eq!((by_store.allowed(), by_store.source()), (false, Source::Store), "{notation}");
        both.lose_the_store();
        let by_fallback = both.limiter.peek(&both.policy, "key", 1).expect("a peek");
        assert_eq!(by_fallback.source(), Source::Fallback);
        assert_eq!(by_fallback.retry_after(), by_store.retry_after(), "{notation}");
        let wait = by_store.retry_after().expect("a time").as_micros() as u64;
        both.pass(wait - 1);
        assert!(!both.limiter.peek(&both.policy, "key", 1).expect("a peek").allowed(), "{notation}: too early");
        both.pass(1);
        assert!(both.limiter.peek(&both.policy, "key", 1).expect("a peek").allowed(), "{notation}: in time");
    }
}

/// A denial of the deny cache goes on as a denial of the fallback, to the same moment.
#[test]
fn a_denial_of_the_deny_cache_goes_on() {
    for notation in ["sliding-counter 10/20s", "sliding-log 10/20s", "gcra 10/20s", "sliding-window 10/20s"] {
        let mut both = Both::new(&Policy::parse(notation).expect("a policy"), true);
        both.limiter.charge(&both.policy, "key", 15).expect("a charge");
        let denied = both.limiter.check(&both.policy, "key").expect("a check");
        let until = denied.at() + denied.retry_after().expect("a time");
        both.pass(300_000);
        let cached = both.limiter.check(&both.policy, "key").expect("a check");
        assert_eq!((cached.allowed(), cached.source()), (false, Source::DenyCache), "{notation}");
        both.lose_the_store();
        both.pass(300_000);
        let cached = both.limiter.check(&both.policy, "key").expect("a check");
        assert_eq!((cached.allowed(), cached.source()), (false, Source::DenyCache), "{notation}");
        // Another cost is not in the deny cache, and the cache repeats a denial for a second.
        for (cost, pause) in [(2, 0), (1, 2_000_000)] {
            both.pass(pause);
            let decision = both.limiter.check_n(&both.policy, "key", cost).expect("a check");
            assert_eq!((decision.allowed(), decision.source()), (false, Source::Fallback), "{notation}");
            assert!(decision.at() + decision.retry_after().expect("a time") >= until, "{notation}, {cost}");
        }
    }
}

/// The store is lost, back, and lost again before it has answered about the key.
#[test]
fn a_debt_outlives_an_outage_in_which_it_was_made() {
    for notation in ["sliding-counter 10/20s", "sliding-log 10/20s", "gcra 10/20s", "concurrency 10 ttl 20s"] {
        let both = Both::new(&Policy::parse(notation).expect("a policy"), false);
        let peek = || both.limiter.peek(&both.policy, "key", 1).expect("a peek");
        both.limiter.charge(&both.policy, "key", 1).expect("a charge");
        both.lose_the_store();
        both.limiter.charge(&both.policy, "key", 15).expect("a charge");
        let first = peek();
        assert_eq!((first.allowed(), first.source()), (false, Source::Fallback));
        // Enough failures that it counts as lost.
        (0..3).for_each(|_| drop(peek()));
        both.proxy.set(Condition::Healthy);
        tidegate_tests::wait::wait_until(Duration::from_secs(20), "the store is back", || {
            both.limiter.peek("5/hour", "other", 1).expect("a peek").source() == Source::Store
        });
        both.lose_the_store();
        let again = peek();
        assert_eq!((again.source(), again.retry_after()), (Source::Fallback, first.retry_after()), "{notation}");
    }
}
