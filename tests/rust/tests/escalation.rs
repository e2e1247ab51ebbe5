//! Blocks that become longer: tests compare their levels with a brute force, in memory and on a server, and check the lives of their keys.

use std::sync::Arc;
use std::time::Duration;

use tidegate::http::problem;
use tidegate::{BlockFor, Limiter, ManualClock, Options, Period, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const START: u64 = 1_704_067_200_000_000;
const SECOND: u64 = 1_000_000;

fn seconds(seconds: u64) -> Period {
    Period::from_micros(seconds * SECOND).expect("in range")
}

fn policy(lengths: &[u64], forgive: u64) -> Policy {
    let block_for = BlockFor::new(lengths.iter().copied().map(seconds)).expect("lengths");
    let options = Options { block_for: Some(block_for), forgive: Some(seconds(forgive)), ..Options::default() };
    let limits = Policy::parse("fixed-window 1/s").expect("a notation").limits().to_vec();
    Policy::new(limits, options).and_then(|policy| policy.named("p")).expect("a policy")
}

/// A block. `by_denial` is true if a denial began it.
#[derive(Clone, Copy, Debug)]
struct Block {
    begins: u64,
    ends: u64,
    by_denial: bool,
}

/// The length in seconds of a block that a denial begins at `now`, computed from all blocks since the last clear.
fn next_length(blocks: &[Block], lengths: &[u64], forgive: u64, now: u64) -> u64 {
    let mut in_a_row = 0;
    let moments = blocks.iter().map(|block| (block.begins, Some(block))).chain([(now, None)]);
    let mut last_end = None;
    for (begins, block) in moments {
        if last_end.is_some_and(|end: u64| end + forgive * SECOND <= begins) {
            in_a_row = 0;
        }
        if let Some(block) = block {
            in_a_row += usize::from(block.by_denial);
            last_end = Some(block.ends);
        }
    }
    lengths[in_a_row.min(lengths.len() - 1)]
}

#[test]
fn levels_are_those_of_a_brute_force() {
    let redis = Servers::start(Kind::Single);
    let mut random = Random::new(35);
    for round in 0..60 {
        let lengths: Vec<u64> = (0..random.pick(&[2, 3, 5])).map(|_| random.below(30) + 1).collect();
        let forgive = random.below(60) + 1;
        let policy = policy(&lengths, forgive);
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = |url: &str| {
            let builder = Limiter::builder().store(url).prefix(fresh_prefix()).clock(Arc::clone(&clock));
            builder.timeout(Duration::from_secs(10)).build().expect("a limiter")
        };
        let limiters = [limiter("memory://"), limiter(redis.url())];
        let (mut now, mut window, mut blocks) = (START, 0, Vec::<Block>::new());
        for step in 0..60 {
            let pauses = [0, 1, SECOND, random.below(20 * SECOND), random.below(90 * SECOND)];
            let pause = random.pick(&pauses);
            now += pause;
            clock.advance(Duration::from_micros(pause));
            let action = random.below(20);
            let case = || format!("round {round}, step {step}: {lengths:?}, forgive {forgive}, {blocks:?}, now {now}");
            match action {
                0 => limiters.iter().for_each(|limiter| limiter.clear(&policy, "k").expect("a clear")),
                1 => limiters.iter().for_each(|limiter| limiter.unblock(&policy, "k").expect("an end")),
                2 => limiters
                    .iter()
                    .for_each(|limiter| limiter.block(&policy, "k", Duration::from_secs(7)).expect("a block")),
                _ => {
                    let running = blocks.last().copied().filter(|block| block.ends > now);
                    let allowed = running.is_none() && window + SECOND <= now;
                    let begun = (running.is_none() && !allowed).then(|| {
                        let ends = now + next_length(&blocks, &lengths, forgive, now) * SECOND;
                        Block { begins: now, ends, by_denial: true }
                    });
                    let block = running.or(begun);
                    for limiter in &limiters {
                        let decision = limiter.check(&policy, "k").expect("a decision");
                        assert_eq!(decision.allowed(), allowed, "{}", case());
                        assert_eq!(decision.abnormal(), block.is_some_and(|block| block.by_denial), "{}", case());
                        let wait = block.map_or(0, |block| block.ends.max(window + SECOND) - now);
                        assert_eq!(decision.retry_after(), Some(Duration::from_micros(wait)), "{}", case());
                    }
                    if allowed {
                        window = now;
                    }
                    blocks.extend(begun);
                }
            }
            match action {
                0 => (window, blocks) = (0, Vec::new()),
                1 => {
                    if let Some(last) = blocks.last_mut() {
                        last.ends = last.ends.min(now);
                    }
                }
                2 => blocks.push(Block { begins: now, ends: now + 7 * SECOND, by_denial: false }),
                _ => {}
            }
        }
    }
}

#[test]
fn a_level_is_kept_until_it_is_forgiven_and_no_longer() {
    let redis = Servers::start(Kind::Single);
    let prefix = fresh_prefix();
    let limiter = Limiter::builder()
        .store(redis.url())
        .timeout(Duration::from_secs(10))
        .prefix(&prefix)
        .deny_cache(Duration::ZERO)
        .build();
    let limiter = limiter.expect("a limiter");
    let policy = policy(&[1, 60], 30);
    let mut connection =
        redis::Client::open(redis.url()).and_then(|client| client.get_connection()).expect("a connection");
    let mut life = || -> Option<u64> {
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut connection).expect("keys");
        let life: i64 = redis::cmd("PTTL").arg(keys.first()?).query(&mut connection).expect("a life");
        u64::try_from(life).ok()
    };
    assert!(limiter.check(&policy, "k").expect("a decision").allowed());
    assert!(life().is_some_and(|life| life <= 2_000), "a key without a level lives as long as before");
    assert!(!limiter.check(&policy, "k").expect("a decision").allowed());
    let kept = life().expect("it expires");
    assert!((30_900..=32_000).contains(&kept), "a block of a second, and half a minute: {kept} ms");
    limiter.unblock(&policy, "k").expect("an end");
    let kept = life().expect("it expires");
    assert!((29_000..=31_000).contains(&kept), "half a minute from now: {kept} ms");
    limiter.clear(&policy, "k").expect("a clear");
    assert!(life().is_none_or(|life| life <= 2_000), "nothing is left of it");
}

#[test]
fn denials_at_the_same_moment_begin_one_block() {
    let redis = Servers::start(Kind::Single);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for url in ["memory://", redis.url()] {
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let builder = Limiter::builder().store(url).prefix(fresh_prefix()).clock(Arc::clone(&clock));
        let limiter = builder.timeout(Duration::from_secs(10)).build_async().expect("a limiter");
        let policy = policy(&[10, 100, 1_000], 60);
        for length in [10, 100, 1_000, 1_000] {
            let decisions = runtime.block_on(async {
                let checks = (0..50).map(|_| {
                    let (limiter, policy) = (limiter.clone(), policy.clone());
                    tokio::spawn(async move { limiter.check(&policy, "k").await.expect("a decision") })
                });
                let mut decisions = Vec::new();
                for check in checks.collect::<Vec<_>>() {
                    decisions.push(check.await.expect("a task"));
                }
                decisions
            });
            let waits: Vec<u64> = decisions
                .iter()
                .filter(|one| !one.allowed())
                .map(|one| one.retry_after().expect("a wait").as_secs())
                .collect();
            assert_eq!(
                (decisions.len() - waits.len(), waits.iter().all(|wait| *wait == length)),
                (1, true),
                "{waits:?}"
            );
            clock.advance(Duration::from_secs(length));
        }
    }
}

#[test]
fn the_problem_says_what_denies_also_from_the_deny_cache() {
    let redis = Servers::start(Kind::Single);
    let limiter = Limiter::builder()
        .store(redis.url())
        .timeout(Duration::from_secs(10))
        .deny_cache(Duration::from_secs(60))
        .prefix(fresh_prefix())
        .build()
        .expect("a limiter");
    let policy = policy(&[60, 600], 60);
    limiter.check(&policy, "k").expect("a decision");
    for source in ["store", "deny-cache"] {
        let denied = limiter.check(&policy, "k").expect("a decision");
        assert_eq!((denied.allowed(), denied.abnormal(), denied.source().name()), (false, true, source));
        assert!(problem(&denied).contains("#abnormal-usage-detected"), "{}", problem(&denied));
    }
    let plain = Policy::parse("fixed-window 1/minute").expect("a policy");
    limiter.block(&plain, "k", Duration::from_secs(9)).expect("a block");
    let denied = limiter.check(&plain, "k").expect("a decision");
    assert!(!denied.abnormal() && problem(&denied).contains("#quota-exceeded"));
}
