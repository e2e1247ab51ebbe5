//! The rules in Rust and the rules in Lua give identical Decisions for identical histories.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock, OnStoreError, Policy};
use tidegate_tests::budget::within;
use tidegate_tests::history;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::SharedFile;

/// All histories (see `budget.rs`); `TIDEGATE_HISTORIES` sets another number, `TIDEGATE_SEED` runs a single one.
const HISTORIES: u64 = 10_000;

#[test]
fn memory_and_redis_agree() {
    agree(Kind::Single, HISTORIES, 8);
}

#[test]
fn memory_and_a_cluster_agree() {
    agree(Kind::Cluster, HISTORIES / 10, 3);
}

#[test]
fn memory_and_a_file_agree() {
    let shared = SharedFile::new();
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, file_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    let file = Limiter::builder().store(shared.url("max_bytes=64MB")).timeout(Duration::from_secs(10));
    let file = file.on_store_error(OnStoreError::Raise).clock(Arc::clone(&file_clock)).build().expect("a limiter");
    for seed in within(3, seeds(HISTORIES)) {
        let expected = history::run(seed, &memory, &memory_clock);
        let found = history::run(seed, &file, &file_clock);
        history::agree(seed, &expected, &found);
    }
}

/// Logs of hundreds of entries, whose older ones the server keeps in chunks, and windows of many granules, which have loops of their own
/// where a policy has two or three of them: they fill, entries leave the window one by one and together, and units go back from the
/// oldest.
#[test]
fn long_histories_agree() {
    for policy in ["sliding-log 300/10s", "60/2s; 300/10s", "20/s; 60/2s; 250/10s", "40/s; 60/2s; 150/5s; 250/10s"] {
        agree_for_long(policy);
    }
}

fn agree_for_long(policy: &str) {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    let memory = Limiter::builder().clock(Arc::clone(&clock)).build().expect("a memory limiter");
    let store = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let store = store.on_store_error(OnStoreError::Raise).clock(Arc::clone(&clock)).build().expect("a redis limiter");
    let policy: Policy = policy.parse().expect("a policy");
    for seed in 0..20 {
        let mut random = Random::new(seed);
        // From what is never full to what nearly always is, and some that end in between.
        let pause = 20_000 + 6_000 * seed;
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let pause = if random.one_in(150) { 11_000_000 } else { random.below(2 * pause) };
            clock.advance(Duration::from_micros(pause));
            let (cost, back) = (random.pick(&[1, 1, 1, 2, 3]), random.pick(&[1, 30, 200]));
            let key = seed.to_string();
            let refunds = random.one_in(40);
            for (limiter, lines) in [(&memory, &mut expected), (&store, &mut found)] {
                let decision = limiter.check_n(&policy, &key, cost).expect("a check");
                lines.push(history::text_of(&decision));
                if refunds {
                    limiter.refund(&policy, &key, back).expect("a refund");
                }
            }
        }
        history::agree(seed, &expected, &found);
    }
}

/// The histories of a run: those that have failed once, and so many others.
fn seeds(histories: u64) -> Vec<u64> {
    let kept = include_str!("seeds.txt").lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    match setting("TIDEGATE_SEED") {
        Some(seed) => vec![seed],
        None => kept.chain(0..setting("TIDEGATE_HISTORIES").unwrap_or(histories)).collect(),
    }
}

fn agree(kind: Kind, histories: u64, seconds: u64) {
    let redis = Servers::start(kind);
    let (one, mut seeds) = (setting("TIDEGATE_SEED"), within(seconds, seeds(histories)));
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, redis_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    // Every fourth history uses the deny cache too, whose answers must be the same.
    let [store, layered] = [Duration::ZERO, Duration::from_secs(60)].map(|longest| {
        let store = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(longest);
        let store = store.on_store_error(OnStoreError::Raise);
        store.clock(Arc::clone(&redis_clock)).build().expect("a redis limiter")
    });
    for seed in seeds.by_ref() {
        let expected = history::run(seed, &memory, &memory_clock);
        // The cache cannot repeat exactly the state of a bucket whose count changed and that was not charged since.
        let contains = |words: &[&str]| words.iter().any(|word| expected.iter().any(|line| line.contains(word)));
        let inexact = contains(&["changed to"]) && contains(&["Gcra", "TokenBucket", "LeakyBucket"]);
        let cached = seed % 4 == 3 && !inexact;
        let limiter = if cached { &layered } else { &store };
        let found = history::answers_of_redis(limiter, &expected, || {
            let lines = history::run(seed, limiter, &redis_clock);
            lines.iter().map(|line| line.replace("\"deny-cache\"", "\"store\"")).collect()
        });
        history::agree(seed, &expected, &found);
    }
    let least = seeds.begun() / 100;
    assert!(one.is_some() || seeds.begun() < 500 || layered.counters().deny_cache > least, "{:?}", layered.counters());
}
