//! Calls of language models. Each reserves 4,000 tokens, runs for 20 to 50 seconds, and settles to the tokens of its
//! answer. The test counts the usage from the answers alone, at the moments of the checks.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Decision, Limiter, ManualClock, Policy};
use tidegate_tests::budget::within;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const PERIOD: u64 = 60 * SECOND;
const LIMIT: u64 = 40_000;
const RESERVED: u64 = 4_000;
/// The length of a run. Callers ask twice in a second.
const RUN: u64 = 20 * PERIOD;

/// A call that is under way.
struct Call {
    decision: Decision,
    ends: u64,
    at: u64,
    tokens: u64,
}

/// The moments of the checks and the tokens of the answers, in order.
fn used(url: &str, notation: &str, seed: u64) -> Vec<(u64, u64)> {
    let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let limiter = builder.clock(Arc::clone(&clock)).build().expect("a limiter");
    let policy = Policy::parse(notation).expect("a policy");
    let (mut random, mut running, mut used) = (Random::new(seed), Vec::<Call>::new(), Vec::new());
    let key = format!("{notation} {seed}");
    for now in (START..START + RUN).step_by(500_000) {
        clock.set(Duration::from_micros(now));
        running.retain(|call| {
            if call.ends <= now {
                limiter.settle(&call.decision, call.tokens).expect("settled");
                used.push((call.at, call.tokens));
            }
            call.ends > now
        });
        let decision = limiter.check_n(&policy, &key, RESERVED).expect("a decision");
        if decision.allowed() {
            let tokens = if random.one_in(2) { 50 + random.below(450) } else { 3_000 + random.below(1_001) };
            running.push(Call { decision, ends: now + (20 + random.below(31)) * SECOND, at: now, tokens });
        }
    }
    used.extend(running.iter().map(|call| (call.at, call.tokens)));
    used.sort_unstable();
    used
}

/// The most tokens that were used from one moment to another, beyond the tokens that this time may add.
fn most(used: &[(u64, u64)], bound: impl Fn(u64, u64) -> Option<u64>) -> u64 {
    let mut most = 0;
    for (first, (from, _)) in used.iter().enumerate() {
        let mut sum = 0;
        for (at, tokens) in &used[first..] {
            sum += tokens;
            let Some(added) = bound(*from, *at) else { break };
            most = most.max(sum.saturating_sub(added));
        }
    }
    most
}

#[test]
fn no_window_and_no_bucket_gives_more_than_its_limit() {
    let redis = Servers::start(Kind::Single);
    let sliding = |from: u64, at: u64| (at - from < PERIOD).then_some(0);
    let same = |from: u64, at: u64| (at / PERIOD == from / PERIOD).then_some(0);
    let drained = |from: u64, at: u64| Some(((at - from) * LIMIT).div_ceil(PERIOD));
    for url in ["memory://", redis.url()] {
        for seed in within(2, 0..4) {
            for algorithm in
                ["sliding-log", "sliding-window", "calendar-window", "gcra", "token-bucket", "leaky-bucket"]
            {
                let used = used(url, &format!("{algorithm} {LIMIT}/minute"), seed);
                let most = match algorithm {
                    "sliding-log" | "sliding-window" => most(&used, sliding),
                    "calendar-window" => most(&used, same),
                    _ => most(&used, drained),
                };
                assert!(most <= LIMIT, "{url} {algorithm} {seed}: {most} tokens of {LIMIT}");
                // Other calls use the tokens that short answers leave.
                let without = RUN / PERIOD * LIMIT / RESERVED;
                assert!(used.len() as u64 > without, "{url} {algorithm} {seed}: {} calls", used.len());
            }
        }
    }
}
