//! The narrow form of stored values, which needs the server's own clock: its bytes, and that it changes no answer.

mod version_1;

use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{CheckOptions, Decision, Limiter, Policy};
use tidegate_tests::any_limiter::fresh_prefix;
use tidegate_tests::servers::{Kind, Servers};

static SERVER: LazyLock<Servers> = LazyLock::new(|| Servers::start(Kind::Single));

/// Nothing drains or ends while a test runs.
const POLICIES: [&str; 6] = [
    "gcra 60000/30d",
    "token-bucket 60000/30d",
    "leaky-bucket 60000/30d",
    "sliding-counter 60000/30d",
    "fixed-window 70000/30d",
    "gcra 600/30d burst 60000",
];

fn limiter(store: &str, prefix: &str) -> Limiter {
    let builder = Limiter::builder().store(store).prefix(prefix).deny_cache(Duration::ZERO);
    builder.timeout(Duration::from_secs(10)).build().expect("a limiter")
}

/// The bytes of the only key under a prefix, and its value.
fn stored(prefix: &str) -> (u64, usize) {
    let mut client = redis::Client::open(SERVER.url()).expect("a URL").get_connection().expect("a connection");
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut client).expect("keys");
    assert_eq!(keys.len(), 1, "{prefix}");
    let bytes = redis::cmd("MEMORY").arg("USAGE").arg(&keys[0]).query(&mut client).expect("a number");
    (bytes, redis::cmd("STRLEN").arg(&keys[0]).query(&mut client).expect("a number"))
}

#[test]
fn a_value_of_one_limit_fits_the_smaller_allocation_while_few_units_are_used() {
    for policy in POLICIES {
        // As long as a usual prefix with the digest of a key.
        let prefix = fresh_prefix();
        let limiter = limiter(SERVER.url(), &prefix);
        let mut used = 0;
        for (cost, narrow) in [(1, true), (254, true), (1, false), (300, false)] {
            used += cost;
            let decision = limiter.check_n(policy, "k", cost).expect("a check");
            assert!(decision.allowed(), "{policy}");
            let (_, length) = stored(&prefix);
            assert_eq!(length <= 12, narrow, "{policy} with {used} units: {length} bytes");
        }
    }
}

#[test]
fn a_key_takes_at_most_72_bytes() {
    let limiter = limiter(SERVER.url(), "tg");
    // Another allocator than the usual one may give up to 16 bytes more than it was asked for.
    let is_usual = SERVER.command(0, &["INFO", "memory"]).to_string().contains("mem_allocator:jemalloc");
    let most = if is_usual { 72 } else { 88 };
    for policy in POLICIES {
        limiter.clear_all().expect("a cleared prefix");
        limiter.check_n(policy, "k", 255).expect("a check");
        let (bytes, _) = stored("tg");
        assert!(bytes <= most, "{policy}: {bytes} bytes");
    }
}

type Calls<'a> = &'a dyn Fn(&Limiter);

/// A value that needs no annex has the bytes of a check, whichever path of the script wrote it.
#[test]
fn a_value_without_an_annex_is_as_short_as_a_check_leaves_it() {
    for policy in
        POLICIES.into_iter().chain(["sliding-log 90/30d", "sliding-window 90/30d", "gcra 9/30d; fixed-window 9/30d"])
    {
        let length = |calls: Calls<'_>| {
            let prefix = fresh_prefix();
            calls(&limiter(SERVER.url(), &prefix));
            stored(&prefix).1
        };
        let check = |limiter: &Limiter, cost| limiter.check_n(policy, "k", cost).expect("a check");
        let checked = length(&|limiter| drop(check(limiter, 5)));
        let others: [(&str, Calls<'_>); 4] = [
            ("charged", &|limiter| drop(limiter.charge(policy, "k", 5).expect("a charge"))),
            ("settled for more", &|limiter| limiter.settle(&check(limiter, 4), 5).expect("settled")),
            ("blocked", &|limiter| {
                check(limiter, 5);
                limiter.block(policy, "k", Duration::from_secs(9)).expect("a block");
                limiter.unblock(policy, "k").expect("no block");
            }),
            ("cleared", &|limiter| {
                limiter.clear(policy, "k").expect("cleared");
                check(limiter, 5);
            }),
        ];
        for (what, calls) in others {
            // The log has an entry for each moment.
            let entries = if policy.starts_with("sliding-log") && what == "settled for more" { 14 } else { 0 };
            assert_eq!(length(calls), checked + entries, "{policy}, {what}");
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Check(u64),
    Take(u64),
    Charge(u64),
    Refund(u64),
    Peek(u64),
    CheckAll(u64),
    Block,
    Unblock,
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![4 => 1..=10u64, 4 => 200..=300u64, 1 => 1..=60_000u64];
    let step = (0..12u8, cost).prop_map(|(kind, cost)| match kind {
        0..=3 => Step::Check(cost),
        4 => Step::Take(cost),
        5 => Step::Charge(cost),
        6 | 7 => Step::Refund(cost),
        8 => Step::Peek(cost),
        9 => Step::CheckAll(cost),
        10 => Step::Block,
        _ if cost % 2 == 0 => Step::Clear,
        _ => Step::Unblock,
    });
    proptest::collection::vec(step, 1..30)
}

fn run(limiter: &Limiter, policy: &Policy, step: &Step) -> Option<Decision> {
    let decision = match *step {
        Step::Check(cost) => limiter.check_n(policy, "k", cost),
        Step::Take(cost) => {
            limiter.check_with(policy, "k", &CheckOptions { cost, partial: true, ..CheckOptions::default() })
        }
        Step::Charge(cost) => limiter.charge(policy, "k", cost),
        Step::Refund(cost) => limiter.refund(policy, "k", cost),
        Step::Peek(cost) => limiter.peek(policy, "k", cost),
        Step::CheckAll(cost) => limiter.check_all([(policy, "k", cost), (policy, "other", 1)]),
        Step::Block => return limiter.block(policy, "k", Duration::from_secs(3600)).map(|()| None).expect("a block"),
        Step::Unblock => return limiter.unblock(policy, "k").map(|()| None).expect("no block"),
        Step::Clear => return limiter.clear(policy, "k").map(|()| None).expect("cleared"),
    };
    Some(decision.expect("a decision"))
}

/// The parts of a decision that do not depend on the moment.
fn said(decision: &Decision) -> (bool, u64, u64, bool) {
    (decision.allowed(), decision.remaining(), decision.granted(), decision.reset_after().is_zero())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// This holds also when the policy's number changes between two calls.
    #[test]
    fn every_call_is_answered_as_in_memory(
        index in 0..POLICIES.len(),
        steps in steps(),
        other in prop_oneof![Just("0000"), Just("00"), Just("0")],
        change_at in 0..40usize,
    ) {
        let notation = POLICIES[index];
        let changed = notation.replace("0000/", &format!("{other}/"));
        let policies = [notation, &*changed].map(|text| Policy::parse(text).expect("a policy").named("p").expect("a name"));
        let limiters = [limiter(SERVER.url(), &fresh_prefix()), limiter("memory://", "tg")];
        for (number, step) in steps.iter().enumerate() {
            if notation.starts_with("leaky") && matches!(step, Step::Take(_)) {
                continue;
            }
            let policy = &policies[usize::from(number >= change_at)];
            let [stored, kept] = limiters.each_ref().map(|limiter| run(limiter, policy, step).as_ref().map(said));
            prop_assert_eq!(stored, kept, "{} {:?}, step {}", policy, step, number);
        }
    }
}
