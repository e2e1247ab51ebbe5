//! Limits learned from the other side. Every store gives the same answers in every history, no observation admits a
//! call earlier, and the calls keep within the limits of servers that count strictly.

mod bounds;
mod strict;

use std::sync::Arc;
use std::time::Duration;

use tidegate::http::Observation;
use tidegate::{CheckOptions, Decision, Limiter, ManualClock, OnStoreError, Policy, Units};
use tidegate_tests::budget::within;
use tidegate_tests::history::{self, answers_of_redis, cost_for, policy, text_of};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::setting::setting;
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::strategies::is_held;

/// All histories (see `budget.rs`). `TIDEGATE_LEARNED` sets another number, `TIDEGATE_SEED` runs a single one.
const HISTORIES: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn seeds(histories: u64) -> std::ops::Range<u64> {
    match setting("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("TIDEGATE_LEARNED").unwrap_or(histories),
    }
}

/// The numbers of a limit in a response: often those of the policy, sometimes any.
fn observation(random: &mut Random, policy: &Policy) -> Observation {
    let mut said = Observation::default();
    let limit = random.pick(&policy.limits().iter().collect::<Vec<_>>());
    let count = if random.one_in(3) { random.below(20) } else { limit.count() };
    if !random.one_in(5) {
        said.limit = Some(count);
    }
    if !random.one_in(6) {
        let most = if random.one_in(10) { 1 << 53 } else { count.min(30) + 1 };
        said.remaining = Some(random.below(most)).map(|left| said.limit.map_or(left, |limit| left.min(limit)));
    }
    if random.one_in(3) {
        said.window = Some(Duration::from_micros(limit.period().micros()));
    }
    if !random.one_in(4) {
        let longest = random.pick(&[SECOND, 10 * SECOND, 60 * SECOND, 3_600 * SECOND, 40 * 86_400 * SECOND]);
        said.reset_after = Some(Duration::from_micros(random.below(longest)));
    }
    if random.one_in(8) {
        said.retry_after = Some(Duration::from_micros(random.below(20 * SECOND)));
    }
    if random.one_in(4) {
        said.name = Some(random.pick(&["burst", "day"]).to_owned());
    }
    said.unit = limit.unit().cloned().filter(|_| !random.one_in(5));
    said
}

/// The response of a service that gives no limit: perhaps a wait.
fn refusal(random: &mut Random) -> Option<Observation> {
    let wait = random.pick(&[50_000, SECOND, 10 * SECOND]);
    let mut said = Observation::default();
    said.retry_after = random.one_in(3).then(|| Duration::from_micros(random.below(wait) + 1));
    said.retry_after.map(|_| said)
}

fn run(seed: u64, limiter: &Limiter, clock: &ManualClock) -> Vec<String> {
    let mut random = Random::new(seed);
    let own = loop {
        let own = policy(&mut random, &format!("learned-{seed}"));
        // Stores differ in when a bucket with `initial` begins anew beside learned limits. That is known and not mended yet.
        let begins_anew = own.limits().iter().any(|limit| limit.initial().is_some());
        if !is_held(&own) && !begins_anew {
            break own;
        }
    };
    let named = match random.below(3) {
        0 => own.clone(),
        1 => own.paced(Duration::from_millis(random.below(100))).expect("a margin"),
        _ => Policy::learned().expect("a policy"),
    };
    let is_learned = named.name() == "learned";
    let key = format!("{seed}");
    let mut now = START + random.below(100 * SECOND);
    let mut lines = vec![format!("{named:?}")];
    let mut last: Vec<Decision> = Vec::new();
    for _ in 0..random.below(30) + 8 {
        let period = own.limits()[0].period().micros().min(100 * SECOND);
        now += match random.below(6) {
            0 | 1 => 0,
            2 => random.below(period),
            3 => random.below(2 * SECOND),
            4 => random.below(60_000),
            _ => random.below(period / 5 + 1),
        };
        clock.set(Duration::from_micros(now));
        let number = random.below(4) + 1;
        let cost = if is_learned { number.into() } else { cost_for(&mut random, &own, number) };
        let options = CheckOptions::from(cost.clone());
        let decision = match random.below(20) {
            0..=8 => {
                let partial = random.one_in(8) && options.units == Units::default();
                let options = CheckOptions { partial, ..options };
                limiter.check_with(&named, &key, &options).or_else(|_| limiter.check_n(&named, &key, 1))
            }
            9 => limiter.acquire_with(&named, &key, &options, Some(Duration::ZERO)),
            10 => limiter.charge(&named, &key, cost),
            11 => limiter.refund(&named, &key, cost),
            12 if random.one_in(3) => {
                limiter.clear(&named, &key).expect("forgotten");
                limiter.peek(&named, &key, 1)
            }
            13 => {
                limiter.block(&named, &key, Duration::from_micros(random.below(SECOND) + 1)).expect("a block");
                limiter.peek(&named, &key, 1)
            }
            14 if !is_learned => limiter.peek(&own, &key, 1),
            15 => limiter.check_all([(&named, key.as_str(), 1), (&named, "other", 1)]),
            16 => limiter.peek_with(&named, &key, &options),
            _ => {
                let said = if is_learned && !random.one_in(3) {
                    refusal(&mut random).into_iter().collect()
                } else {
                    (0..random.below(3) + 1).map(|_| observation(&mut random, &own)).collect()
                };
                let answered =
                    if last.is_empty() { None } else { Some(&last[random.below(last.len() as u64) as usize]) };
                lines.push(format!("{said:?} {}", answered.is_some()));
                limiter.observe(&named, &key, said, answered.filter(|_| !random.one_in(3)))
            }
        };
        match decision {
            Ok(decision) => {
                lines.push(text_of(&decision));
                last.push(decision);
            }
            Err(error) => lines.push(error.to_string()),
        }
    }
    lines
}

fn agree(url: &str, histories: u64) {
    let clock = || Arc::new(ManualClock::new(Duration::ZERO));
    let (memory_clock, other_clock) = (clock(), clock());
    let memory = Limiter::builder().clock(Arc::clone(&memory_clock)).build().expect("a memory limiter");
    let other = Limiter::builder().store(url).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let other = other.on_store_error(OnStoreError::Raise).clock(Arc::clone(&other_clock)).build().expect("a limiter");
    for seed in within(2, seeds(histories)) {
        let expected = run(seed, &memory, &memory_clock);
        let found = answers_of_redis(&other, &expected, || run(seed, &other, &other_clock));
        history::agree(seed, &expected, &found);
    }
}

#[test]
fn memory_and_a_server_learn_the_same() {
    agree(Servers::start(Kind::Single).url(), HISTORIES);
}

#[test]
fn memory_and_a_file_learn_the_same() {
    agree(&SharedFile::new().url("max_bytes=16MB"), HISTORIES);
}
