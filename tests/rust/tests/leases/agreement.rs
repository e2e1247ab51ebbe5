//! Memory and Redis take units in advance, and take them back, in the same way.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock, Policy, bench};
use tidegate_tests::budget::within;
use tidegate_tests::history::{agree, answers_of_redis, text_of};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

/// Histories of each policy.
const HISTORIES: u64 = 250;
const SECOND: u64 = 1_000_000;

const POLICIES: [&str; 13] = [
    "fixed-window 60/2s",
    "calendar-window 50/s",
    "calendar-window 500/month",
    "calendar-window 500/day from at 10:15 in Australia/Lord_Howe",
    "sliding-log 40/2s",
    "sliding-log 900/30s",
    "sliding-window 60/s",
    "sliding-counter 90/3s",
    "token-bucket 100/s burst 40",
    "token-bucket 7/3s burst 90",
    "gcra 3/7ms burst 500",
    "gcra 1000000000000/3s",
    "fixed-window 90/3s; gcra 70/s burst 60; sliding-log 80/2s; sliding-window 75/2s",
];

/// The lines of a history: one for each call.
fn history(seed: u64, notation: &str, limiter: &Limiter, clock: &ManualClock) -> Vec<String> {
    let mut random = Random::new(seed);
    let policy =
        Policy::parse(notation).and_then(|policy| policy.named(format!("{notation} {seed}"))).expect("a policy");
    let mut now = 1_700_000_000 * SECOND + random.below(1_000_000_000 * SECOND / 1_000);
    let (mut taken, mut lines) = (Vec::new(), Vec::new());
    for _ in 0..5 + random.below(40) {
        now += random.pick(&[0, 1, 900, 40_000, 300_000, 1_500_000]) * random.below(4);
        if random.one_in(25) {
            now -= random.below(400_000);
        }
        clock.set(Duration::from_micros(now));
        let (units, life) = (1 + random.below(30), random.pick(&[5_000, 100_000, SECOND]));
        let line = match random.below(10) {
            0..=3 => {
                let (granted, at, line) = bench::lease(limiter, &policy, "k", units, life).expect("an answer");
                if granted > 0 {
                    taken.push((granted, life, at));
                }
                format!("lease {units} for {life}: {granted} {line}")
            }
            4..=5 if !taken.is_empty() => {
                let (granted, life, at) = taken.swap_remove(random.below(taken.len() as u64) as usize);
                let units = 1 + random.below(granted);
                let line = bench::give_back(limiter, &policy, "k", (units, life), at).expect("an answer");
                format!("give back {units} of {at}: {line}")
            }
            6 => text_of(&limiter.charge(&policy, "k", units).expect("a charge")),
            7 => text_of(&limiter.peek(&policy, "k", units).expect("a peek")),
            8 if random.one_in(3) => format!("{:?}", limiter.block(&policy, "k", Duration::from_micros(life))),
            _ => text_of(&limiter.check_n(&policy, "k", 1 + units / 5).expect("a check")),
        };
        lines.push(format!("{now}: {line}"));
    }
    lines
}

#[test]
fn memory_and_redis_agree() {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(Duration::ZERO));
    let limiter = |url: &str| {
        let builder = Limiter::builder().store(url).timeout(Duration::from_secs(20)).deny_cache(Duration::ZERO);
        builder.clock(Arc::clone(&clock)).build().expect("a limiter")
    };
    let (memory, redis) = (limiter("memory://"), limiter(redis.url()));
    for notation in POLICIES {
        println!("{notation}");
        let mut granted = 0;
        let mut seeds = within(1, 0..HISTORIES);
        for seed in seeds.by_ref() {
            let expected = history(seed, notation, &memory, &clock);
            let found = answers_of_redis(&redis, &expected, || history(seed, notation, &redis, &clock));
            granted += expected.iter().filter(|line| line.contains("lease") && line.contains(" true ")).count();
            agree(seed, &expected, &found);
        }
        assert!(granted as u64 > seeds.begun(), "{notation}: {granted} leases");
    }
}
