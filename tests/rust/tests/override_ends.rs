//! The first call after another limiter has removed an override: it is made as its caller asked, not by the remembered override.

use std::time::{Duration, Instant};

use tidegate::{CheckOptions, Cost, HoldAnswer, KeyOverride, Limiter, Options, Policy};
use tidegate_tests::any_limiter::{AnyLimiter, fresh_prefix};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;

/// Runs with a limiter that sets and removes overrides, and another one of the same store, blocking and async.
fn on_each_store(run: impl Fn(&AnyLimiter, &AnyLimiter)) {
    let (redis, shared) = (Servers::start(Kind::Single), SharedFile::new());
    for url in [redis.url().to_owned(), shared.url("max_bytes=16MB")] {
        for is_async in [false, true] {
            let builder = Limiter::builder().store(url.clone()).prefix(fresh_prefix()).timeout(Duration::from_secs(10));
            let builder = builder.deny_cache(Duration::ZERO);
            let limiter = || AnyLimiter::new(builder.clone(), is_async).expect("a limiter");
            run(&limiter(), &limiter());
        }
    }
}

fn policy(notation: &str, options: Options) -> Policy {
    let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
    Policy::new(limits, options).and_then(|policy| policy.named("p")).expect("a policy")
}

fn tokens(number: u64) -> CheckOptions {
    Cost::from([("tokens", number)]).into()
}

/// Another limiter sets an override, this one learns it, and the other one removes it.
fn remembers_one_that_is_gone(setter: &AnyLimiter, limiter: &AnyLimiter, policy: &Policy, key: &str, text: &str) {
    let own = KeyOverride::parse(text).expect("limits");
    setter.set_override(policy, key, Some(&own), None).expect("an override");
    let seen = limiter.peek(policy, key, Cost::one_of_each(policy)).expect("a peek");
    assert!(seen.overridden());
    setter.set_override(policy, key, None, None).expect("a removal");
}

#[test]
fn it_pays_its_own_cost() {
    on_each_store(|setter, limiter| {
        let policy = policy("fixed-window 100/hour; fixed-window 1000 tokens/hour", Options::default());
        for text in ["fixed-window 50/hour", "none", "fixed-window 5/hour; fixed-window 9000 tokens/day"] {
            let gone = |key: &str| {
                let key = format!("{key} {text}");
                remembers_one_that_is_gone(setter, limiter, &policy, &key, text);
                key
            };
            let left = |key: &str| {
                let seen = limiter.peek(&policy, key, [("tokens", 1)]).expect("a peek");
                seen.limits().map(|limit| limit.remaining).collect::<Vec<_>>()
            };
            let key = gone("check");
            assert!(!limiter.check_with(&policy, &key, &tokens(1_001)).expect("a decision").allowed(), "{text}");
            let key = gone("check that fits");
            assert!(limiter.check_with(&policy, &key, &tokens(1_000)).expect("a decision").allowed(), "{text}");
            assert_eq!(left(&key), [99, 0], "{text}");
            let key = gone("peek");
            assert!(!limiter.peek(&policy, &key, [("tokens", 1_001)]).expect("a peek").allowed(), "{text}");
            let key = gone("charge");
            limiter.charge(&policy, &key, [("tokens", 300)]).expect("a charge");
            assert_eq!(left(&key), [99, 700], "{text}");
            let key = gone("refund");
            setter.charge(&policy, &key, [("tokens", 300)]).expect("a charge");
            limiter.refund(&policy, &key, [("tokens", 100)]).expect("a refund");
            assert_eq!(left(&key), [100, 800], "{text}");
            let key = gone("check_all");
            let all = |number| match limiter {
                AnyLimiter::Blocking(limiter) => limiter.check_all([(&policy, key.as_str(), tokens(number))]),
                AnyLimiter::Async(limiter, runtime) => {
                    runtime.block_on(limiter.check_all([(&policy, key.as_str(), tokens(number))]))
                }
            };
            assert!(!all(1_001).expect("a decision").allowed(), "{text}");
            let key = gone("acquire");
            let acquired = match limiter {
                AnyLimiter::Blocking(limiter) => {
                    limiter.acquire_with(&policy, &key, &tokens(1_001), Some(Duration::ZERO))
                }
                AnyLimiter::Async(limiter, runtime) => {
                    runtime.block_on(limiter.acquire_with(&policy, &key, &tokens(1_001), Some(Duration::ZERO)))
                }
            };
            assert!(!acquired.expect("a decision").allowed(), "{text}");
        }
    });
}

/// A settle charges and gives back by the limits that the key has by then, because it knows the Decision.
#[test]
fn a_settle_changes_the_limits_that_the_key_has_by_then() {
    on_each_store(|setter, limiter| {
        let policy = policy("fixed-window 100/hour; fixed-window 1000 tokens/hour", Options::default());
        for text in ["fixed-window 50/hour", "none", "fixed-window 9000 tokens/day"] {
            for (actual, left) in [(120, 880), (900, 100), (500, 500)] {
                let key = format!("{text} {actual}");
                let decision = limiter.check_with(&policy, &key, &tokens(500)).expect("a decision");
                remembers_one_that_is_gone(setter, limiter, &policy, &key, text);
                limiter.settle(&decision, [("tokens", actual)]).expect("a settle");
                let seen = limiter.peek(&policy, &key, [("tokens", 1)]).expect("a peek");
                assert_eq!(seen.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [99, left], "{text}");
            }
        }
    });
}

#[test]
fn a_key_that_does_not_count_a_unit_is_settled_as_it_is_charged() {
    on_each_store(|setter, limiter| {
        let policy = policy("fixed-window 100/hour; fixed-window 1000 tokens/hour", Options::default());
        for text in ["fixed-window 50/hour", "none"] {
            let own = KeyOverride::parse(text).expect("limits");
            setter.set_override(&policy, text, Some(&own), None).expect("an override");
            let decision = limiter.check_with(&policy, text, &tokens(5_000)).expect("a decision");
            assert!(decision.allowed() && decision.overridden());
            limiter.settle(&decision, [("tokens", 120)]).expect("a settle");
            let error =
                limiter.settle(&limiter.check_with(&policy, text, &tokens(1)).expect("a decision"), [("pages", 1)]);
            assert_eq!(error.expect_err("the policy counts no pages").code(), "cost_invalid");
            setter.set_override(&policy, text, None, None).expect("a removal");
            let seen = limiter.peek(&policy, text, [("tokens", 1)]).expect("a peek");
            assert_eq!(seen.limits().map(|limit| limit.remaining).collect::<Vec<_>>()[1], 1_000, "{text}");
        }
    });
}

#[test]
fn a_hold_is_given_back_whatever_its_key_had_meanwhile() {
    on_each_store(|setter, limiter| {
        let policy = policy("concurrency 1 ttl 1h", Options::default());
        for text in ["none", "fixed-window 50/hour"] {
            let hold = limiter.hold(&policy, text, 1).expect("an answer").held().expect("there is room");
            remembers_one_that_is_gone(setter, limiter, &policy, text, text);
            drop(hold);
            // The release arrives by the time of a later call, also if a task makes it.
            let held = (0..500).find_map(|_| {
                let answer = limiter.hold(&policy, text, 1).expect("an answer");
                std::thread::sleep(Duration::from_millis(if matches!(answer, HoldAnswer::Denied(_)) { 20 } else { 0 }));
                answer.held()
            });
            assert!(held.is_some(), "{text}");
        }
    });
}

#[test]
fn tasks_repeat_a_call_too_and_a_lease_is_not_used() {
    let redis = Servers::start(Kind::Single);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let prefix = fresh_prefix();
    let builder = Limiter::builder().store(redis.url()).prefix(&prefix).timeout(Duration::from_secs(10));
    let builder = builder.deny_cache(Duration::ZERO);
    let (tasks, setter) = (builder.clone().build_async().expect("a limiter"), builder.build().expect("a limiter"));
    let options = Options { lease: Some(tidegate::Lease::percent(5.0).expect("a lease")), ..Options::default() };
    let leasing = policy("1000/minute", options);
    let own = |text: &str| KeyOverride::parse(text).expect("limits");
    runtime.block_on(async {
        for _ in 0..200 {
            tasks.check(&leasing, "k").await.expect("a decision");
        }
        setter.set_override(&leasing, "k", Some(&own("300/minute")), None).expect("an override");
        let began = Instant::now();
        loop {
            let decision = tasks.check(&leasing, "k").await.expect("a decision");
            if decision.overridden() {
                assert_eq!((decision.limit(), decision.source().name()), (300, "store"));
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(3), "a lease ends within a second");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let many = (0..100).map(|_| {
            let (tasks, leasing) = (tasks.clone(), leasing.clone());
            tokio::spawn(async move { tasks.check(&leasing, "k").await.expect("a decision").overridden() })
        });
        for check in many.collect::<Vec<_>>() {
            assert!(check.await.expect("a task"));
        }
        setter.set_override(&leasing, "k", None, None).expect("a removal");
        assert!(!tasks.check(&leasing, "k").await.expect("a decision").overridden());
        let tasks_set = tasks.set_override(&leasing, "other", Some(&own("none")), None).await;
        tasks_set.expect("an override");
        assert_eq!(tasks.overrides(&leasing).await.expect("a list")[0].limits, "none");
    });
}
