//! Floods of keys and of notations, in processes that may use little memory. Everything that a client can make many of
//! is bounded in bytes, and given back. `docs/production/operations.md` lists the bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate::{Limiter, Policy};
use tidegate_tests::memory_limit::{
    resident_megabytes, wait_until_given_back, with_redis_within_megabytes, within_megabytes,
};

/// The bytes of a long key.
const LONG: usize = 60_000;
const UNREACHABLE: &str = "redis://127.0.0.1:1/0";

fn limiter(store: &str) -> Limiter {
    Limiter::builder().store(store).timeout(Duration::from_secs(5)).build().expect("a limiter")
}

fn long_key(number: u32) -> String {
    format!("{number:0LONG$}")
}

/// Checks each key twice. The second check is denied.
fn deny_each(limiter: &Limiter, keys: u32) {
    let policy = Policy::parse("1/hour").expect("a policy");
    for number in 0..keys {
        let key = long_key(number);
        let decisions = [0; 2].map(|_| limiter.check(&policy, &key).expect("a Decision"));
        assert_eq!(decisions.each_ref().map(tidegate::Decision::allowed), [true, false], "key {number}");
        assert_eq!(decisions[1].key(), key, "a Decision has the key of its caller");
    }
    // No key was forgotten, and none is taken for another.
    let key = long_key(keys / 2);
    assert!(!limiter.check(&policy, &key).expect("a Decision").allowed());
    assert!(limiter.check(&policy, &format!("{key}0")).expect("a Decision").allowed());
}

#[test]
fn long_keys_in_memory() {
    within_megabytes(250, "memory://?max_keys=100000", |store| deny_each(&limiter(store), 40_000));
}

#[test]
fn long_keys_that_redis_denies() {
    with_redis_within_megabytes(250, |store| deny_each(&limiter(store), 12_000));
}

#[test]
fn long_keys_during_an_outage() {
    within_megabytes(250, UNREACHABLE, |store| deny_each(&limiter(store), 12_000));
}

#[test]
fn long_keys_in_queues() {
    within_megabytes(250, "memory://", |store| {
        let limiter = limiter(store);
        for number in 0..10_000 {
            let key = long_key(number);
            for allowed in [true, false] {
                let decision = limiter.acquire("1/hour", &key, 1, Some(Duration::from_millis(1)));
                assert_eq!(decision.expect("a Decision").allowed(), allowed);
            }
        }
    });
}

#[test]
fn two_million_denied_keys() {
    within_megabytes(200, "memory://?max_keys=10000&max_bytes=64MB", |store| {
        let warnings = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&warnings);
        let limiter = Limiter::builder().store(store).on_warning(Arc::new(move |sentence| {
            assert!(sentence.contains("max_bytes"), "{sentence}");
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let limiter = limiter.build().expect("a limiter");
        let policy = Policy::parse("gcra 1/hour").expect("a policy");
        for number in 0..2_000_000 {
            let key = number.to_string();
            let allowed = [0; 2].map(|_| limiter.check(&policy, &key).expect("a Decision").allowed());
            assert_eq!(allowed, [true, false], "key {number}");
        }
        assert!(limiter.counters().forgotten_denials > 1_000_000, "{:?}", limiter.counters());
        assert_eq!(warnings.load(Ordering::Relaxed), 1);
        // The newest denials end last and are kept.
        assert!(!limiter.check(&policy, "1999999").expect("a Decision").allowed());
    });
}

fn check_long_notations(limiter: &Limiter) {
    for number in 0..3_000 {
        let notation = format!("{:LONG$}1/hour;{}/day", "", number + 1);
        for (key, allowed) in [("a", true), ("a", false), ("b", true)] {
            let key = format!("{key}{number}");
            assert_eq!(limiter.check(&notation, &key).expect("a Decision").allowed(), allowed, "{number}");
        }
    }
}

#[test]
fn long_notations_in_memory() {
    within_megabytes(150, "memory://", |store| check_long_notations(&limiter(store)));
}

#[test]
fn long_notations_that_redis_denies() {
    with_redis_within_megabytes(150, |store| check_long_notations(&limiter(store)));
}

#[test]
fn metadata_in_journals() {
    within_megabytes(250, "memory://?max_bytes=50MB", |store| {
        let limiter = limiter(store);
        let policy = Policy::parse("1000/hour").expect("a policy").limits().to_vec();
        let options = tidegate::Options { journal: 100, ..tidegate::Options::default() };
        let policy = Policy::new(policy, options).expect("a policy");
        for number in 0..20_000 {
            let options = tidegate::CheckOptions { meta: Some(vec![7; LONG]), ..Default::default() };
            limiter.check_with(&policy, &format!("key {}", number % 500), &options).expect("a Decision");
        }
    });
}

#[test]
fn what_a_flood_took_is_given_back() {
    within_megabytes(500, "memory://", |store| {
        let limiter = limiter(store);
        let before = resident_megabytes();
        for number in 0..600_000 {
            limiter.check("gcra 1/8s", &format!("key {number}")).expect("a Decision");
        }
        let flooded = resident_megabytes();
        assert!(flooded > before + 30, "the flood took {} MB", flooded - before);
        wait_until_given_back(before + (flooded - before) / 5, || {
            limiter.check("5/minute", "another").expect("a Decision");
        });
    });
}
