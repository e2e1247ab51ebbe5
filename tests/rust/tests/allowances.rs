//! `allows` is a check that returns less.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, Allowance, Decision, ErrorKind, KeyOverride, Limit, Limiter, ManualClock, Options, Policy};
use tidegate_tests::random::Random;

const STEPS: usize = 2_000;

fn said(decision: &Decision) -> (bool, u64, Option<Duration>) {
    (decision.allowed(), decision.remaining(), decision.retry_after())
}

fn short(allowance: Allowance) -> (bool, u64, Option<Duration>) {
    (allowance.allowed, allowance.remaining, allowance.retry_after)
}

fn policies() -> Vec<Policy> {
    let each = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency);
    let mut notations: Vec<String> = each.map(|algorithm| format!("{} 7/minute", algorithm.name())).collect();
    notations.extend(["20/minute; 5/3s", "0/minute"].map(str::to_owned));
    let plain = notations.iter().map(|notation| (notation.as_str(), Options::default()));
    let lengths = Some("40 s".parse().expect("a length"));
    let with_options = [
        ("7/minute", Options { shadow: true, ..Options::default() }),
        ("gcra 7/minute", Options { block_for: lengths, ..Options::default() }),
        ("fixed-window 7/minute", Options { count_denied: true, ..Options::default() }),
        ("7/minute", Options { journal: 3, ..Options::default() }),
    ];
    let limits = |notation: &str| Policy::parse(notation).expect(notation).limits().to_vec();
    let mut all: Vec<(Vec<Limit>, Options)> =
        plain.chain(with_options).map(|(notation, options)| (limits(notation), options)).collect();
    let initial = limits("token-bucket 6/minute")[0].clone().with_initial(2).expect("a limit");
    all.push((vec![initial], Options::default()));
    let named = all.into_iter().enumerate().map(|(number, (limits, options))| {
        Policy::new(limits, options).and_then(|policy| policy.named(format!("p{number}"))).expect("a policy")
    });
    named.collect()
}

#[test]
fn it_says_what_a_decision_says_and_counts_as_one() {
    let mut random = Random::new(0x5eed);
    for policy in policies() {
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
        let limiter =
            || Limiter::builder().clock(Arc::clone(&clock)).named(policy.clone()).and_then(tidegate::Builder::build);
        let (whole, slim) = (limiter().expect("a limiter"), limiter().expect("a limiter"));
        for step in 0..STEPS {
            clock.advance(Duration::from_millis(random.below(4_000)));
            let (key, cost) = (random.pick(&["a", "b"]), random.below(3) + 1);
            let by_name = random.one_in(2);
            match random.below(12) {
                0 => {
                    whole.refund(&policy, key, cost).expect("a refund");
                    slim.refund(&policy, key, cost).expect("a refund");
                }
                1 => {
                    let own: KeyOverride = "9/minute".parse().expect("numbers");
                    if whole.set_override(policy.name(), key, Some(&own), None).is_ok() {
                        slim.set_override(policy.name(), key, Some(&own), None).expect("an override");
                    }
                }
                _ => {
                    let expected = said(&whole.check_n(&policy, key, cost).expect("a check"));
                    let found = if by_name {
                        slim.allows_n(policy.name(), key, cost)
                    } else {
                        slim.allows_n(&policy, key, cost)
                    };
                    assert_eq!(short(found.expect("an answer")), expected, "{policy:?}, step {step}");
                }
            }
        }
        assert_eq!(whole.stats().policies, slim.stats().policies, "{policy:?}");
    }
}

#[test]
fn it_refuses_what_a_check_refuses() {
    let limiter = Limiter::builder().policy("login", "5/minute").and_then(tidegate::Builder::build).expect("a limiter");
    let kind = |policy: &str, key: &str, cost: u64| limiter.allows_n(policy, key, cost).expect_err("an error").kind();
    assert_eq!(kind("lgoin", "k", 1), ErrorKind::PolicyUnknown);
    assert_eq!(kind("login", &"k".repeat(tidegate::MAX_KEY + 1), 1), ErrorKind::KeyInvalid);
    assert_eq!(kind("login", "k", 0), ErrorKind::CostInvalid);
    assert_eq!(kind("concurrency 5", "k", 1), ErrorKind::ConfigInvalid);
    limiter.close();
    assert_eq!(kind("login", "k", 1), ErrorKind::Closed);
}
