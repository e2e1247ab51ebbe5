//! Limits that count a named unit: one call takes its number of each unit, all or nothing.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    Algorithm, CheckOptions, Cost, Decision, ErrorKind, Limit, Limiter, ManualClock, Options, Period, Policy, Units,
};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const START: Duration = Duration::from_secs(1_700_000_000);

fn memory() -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START));
    (Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter"), clock)
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.limits().map(|limit| limit.remaining).collect()
}

const LLM: &str = "500/minute; 100000 tokens/minute; concurrency 8";

#[test]
fn a_call_takes_of_each_limit_what_it_says() {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(START));
    let stored = Limiter::builder()
        .store(redis.url())
        .timeout(Duration::from_secs(10))
        .prefix(fresh_prefix())
        .clock(Arc::clone(&clock));
    for limiter in [memory().0, stored.build().expect("a limiter")] {
        let hold = limiter.hold(LLM, "org", [("tokens", 1_200)]).expect("a hold").held().expect("room");
        assert_eq!(remaining(hold.decision()), [499, 98_800, 7]);
        assert_eq!((hold.decision().cost(), hold.decision().granted()), (1, 1));
        let limits: Vec<_> =
            hold.decision().limits().map(|limit| (limit.unit.map(|unit| unit.to_string()), limit.cost)).collect();
        assert_eq!(limits, [(None, 1), (Some("tokens".to_owned()), 1_200), (None, 1)]);
        // All or nothing.
        let denied = limiter.hold(LLM, "org", [("tokens", 98_801)]).expect("an answer");
        assert_eq!(remaining(denied.decision()), [499, 98_800, 7]);
        assert!(!denied.decision().allowed());
        assert!(denied.decision().limits().map(|limit| limit.exceeded).eq([false, true, false]));
        // A settle changes no unit that it does not name.
        limiter.settle(hold.decision(), [("tokens", 934)]).expect("settled");
        let peek = limiter.peek(LLM, "org", [("tokens", 0)]).expect("a peek");
        assert_eq!(remaining(&peek), [499, 100_000 - 934, 7]);
        let more = limiter.hold(LLM, "org", [("tokens", 66), ("cost", 2)]).expect("a hold").held().expect("room");
        assert_eq!(remaining(more.decision()), [497, 99_000, 5]);
        limiter.settle(more.decision(), [("tokens", 1_066)]).expect("settled");
        assert_eq!(remaining(&limiter.peek(LLM, "org", [("tokens", 0)]).expect("a peek")), [497, 98_000, 5]);
    }
}

#[test]
fn what_is_not_named_is_an_error() {
    let (limiter, _) = memory();
    let invalid = |policy: &str, cost: Cost| {
        let error = limiter.peek(policy, "k", cost).expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::CostInvalid, "{error}");
        error.message().to_owned()
    };
    let llm = "500/minute; 100000 tokens/minute";
    assert!(invalid(llm, 1.into()).contains("counts tokens, and the call does not say how many"));
    assert!(invalid(llm, [("token", 5)].into()).contains("counts no \"token\": it counts cost, tokens"));
    assert!(invalid("100000 tokens/minute", 5.into()).contains("no limit for a cost of 5"));
    assert!(invalid("100000 tokens/minute", [("tokens", 5), ("cost", 2)].into()).contains("counts no \"cost\""));
    assert!(invalid("5/minute", [("tokens", 5)].into()).contains("counts no \"tokens\": it counts cost"));
    assert!(invalid(llm, [("tokens", 1 << 53)].into()).contains("2^53"));
    // `requests` is one if the call does not name it.
    let counted = limiter.check("5 requests/minute", "k").expect("a check");
    assert_eq!(remaining(&counted), [4]);
    let counted = limiter.check_with(
        "5 requests/minute",
        "k",
        &CheckOptions { units: [("Requests", 3)].into(), ..CheckOptions::default() },
    );
    assert_eq!(remaining(&counted.expect("a check")), [1]);
    for (notation, what) in [
        ("5 cost/minute", "`cost`"),
        ("5 burst/minute", "burst"),
        ("5 tokens", "per"),
        ("concurrency 5 tokens", "unexpected"),
    ] {
        let error = Policy::parse(notation).expect_err(notation);
        assert!(error.to_string().contains(what), "{notation}: {error}");
    }
    let parsed =
        Policy::parse("100 permits per 2 hours; gcra 5_000 X-y_1/s".replace('_', "").as_str()).expect("a policy");
    assert_eq!(parsed.to_string(), "100 permits/2 hours; gcra 5000 x-y1/s");
    let options = Options { lease: Some("10%".parse().expect("a lease")), ..Options::default() };
    assert!(Policy::new(parsed.limits().to_vec(), options).is_err());
    let partial = CheckOptions { partial: true, units: [("permits", 3)].into(), ..CheckOptions::default() };
    assert_eq!(
        limiter.check_with("100 permits/hour", "k", &partial).expect_err("refused").kind(),
        ErrorKind::ConfigInvalid
    );
}

/// A policy with units is like several policies with one limit each, and each of them is asked for its number alone.
#[test]
fn each_limit_counts_as_if_it_were_alone() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (whole, clock) = memory();
        let (alone, other_clock) = memory();
        let names = ["tokens", "bytes", "requests"];
        let mut limits = Vec::new();
        for (index, name) in names.iter().enumerate().take(random.below(3) as usize + 1) {
            let algorithms = Algorithm::ALL
                .iter()
                .copied()
                .filter(|algorithm| !matches!(algorithm, Algorithm::Concurrency | Algorithm::LeakyBucket));
            let algorithms: Vec<Algorithm> = algorithms.collect();
            let algorithm = random.pick(&algorithms);
            let limit = Limit::new(
                algorithm,
                random.below(40) + 1,
                Period::from_micros((random.below(9) + 1) * 1_000_000).expect("in range"),
            )
            .expect("a limit");
            limits.push(if index == 0 && random.one_in(2) { limit } else { limit.with_unit(name).expect("a name") });
        }
        let single = |limit: &Limit, index: usize| {
            let policy = Policy::new(vec![limit.clone()], Options::default()).expect("a policy");
            policy.named(format!("single {index}")).expect("a name")
        };
        let singles: Vec<Policy> = limits.iter().enumerate().map(|(index, limit)| single(limit, index)).collect();
        let policy = Policy::new(limits.clone(), Options::default()).expect("a policy").named("whole").expect("a name");
        for step in 0..40 {
            let pause = Duration::from_micros(random.below(2_000_000));
            clock.advance(pause);
            other_clock.advance(pause);
            let numbers: Vec<u64> = limits.iter().map(|limit| random.below(limit.capacity() / 2 + 2)).collect();
            let of = |limit: &Limit| limit.unit().map_or("cost", |unit| unit.name()).to_owned();
            let units: Units = limits.iter().map(of).zip(numbers.iter().copied()).collect();
            let cost = |index: usize| Cost::from([(&*of(&limits[index]), numbers[index])]);
            let admits =
                (0..limits.len()).all(|index| alone.peek(&singles[index], "k", cost(index)).expect("a peek").allowed());
            let decision = match random.below(4) {
                0 => whole.peek(&policy, "k", units).expect("a peek"),
                1 => {
                    (0..limits.len())
                        .for_each(|index| drop(alone.charge(&singles[index], "k", cost(index)).expect("a charge")));
                    whole.charge(&policy, "k", units).expect("a charge")
                }
                _ => {
                    if admits {
                        (0..limits.len()).for_each(|index| {
                            let options = CheckOptions::from(cost(index));
                            assert!(alone.check_with(&singles[index], "k", &options).expect("a check").allowed());
                        });
                    }
                    whole.check_with(&policy, "k", &CheckOptions { units, ..CheckOptions::default() }).expect("a check")
                }
            };
            let left: Vec<u64> = (0..limits.len())
                .map(|index| alone.peek(&singles[index], "k", cost(index)).expect("a peek").remaining())
                .collect();
            assert_eq!(remaining(&decision), left, "seed {seed}, step {step}: {policy}");
        }
    }
}
