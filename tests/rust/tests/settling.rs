//! A Decision is settled once, and metadata of every call that consumes reaches the journal.

use tidegate::{CheckOptions, Decision, ErrorKind, HoldAnswer, Limiter, Options, Policy};
use tidegate_tests::servers::{Kind, Servers};

fn limiter(url: &str, prefix: &str) -> Limiter {
    let builder = Limiter::builder().store(url).prefix(prefix).timeout(std::time::Duration::from_secs(10));
    builder.policy("p", "10/hour").expect("a name").policy("q", "20/hour").expect("a name").build().expect("a limiter")
}

fn used(limiter: &Limiter) -> u64 {
    10 - limiter.peek("p", "k", 1).expect("a peek").remaining()
}

fn refused(limiter: &Limiter, decision: &Decision, part: &str) {
    let error = limiter.settle(decision, 0).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    assert!(error.message().contains(part), "{error}");
}

#[test]
fn a_decision_and_its_copies_are_settled_once() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        let limiter = limiter(url, "once");
        let decision = limiter.check_n("p", "k", 5).expect("a decision");
        let copy = decision.clone();
        assert_eq!(limiter.settle(&copy, 1 << 60).expect_err("a cost").kind(), ErrorKind::CostInvalid);
        limiter.settle(&copy, 2).expect("settled");
        refused(&limiter, &decision, "settle a Decision once");
        refused(&limiter, &decision.clone(), "settle a Decision once");
        assert_eq!(used(&limiter), 2);
        let whole = limiter.check_all([("p", "k", 5), ("q", "k", 5)]).expect("a decision");
        limiter.settle(&whole.decisions()[1], 5).expect("settled");
        refused(&limiter, &whole, "\"q\" was settled");
        assert_eq!(used(&limiter), 7);
        limiter.settle(&whole.decisions()[0], 0).expect("settled");
        assert_eq!(used(&limiter), 2);
    }
}

#[test]
fn a_decision_belongs_to_the_limiters_of_one_store_and_prefix() {
    let redis = Servers::start(Kind::Single);
    let (memory, other) = (limiter("memory://", "a"), limiter("memory://", "a"));
    refused(&other, &memory.check("p", "k").expect("a decision"), "another limiter");
    let [one, same, prefixed] = ["a", "a", "b"].map(|prefix| limiter(redis.url(), prefix));
    let decision = one.check_n("p", "k", 5).expect("a decision");
    refused(&prefixed, &decision, "another limiter");
    refused(&memory, &decision, "another limiter");
    same.settle(&decision, 1).expect("settled");
    assert_eq!(used(&one), 1);
}

#[test]
fn metadata_of_every_call_that_consumes_is_in_the_journal() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        let limiter = limiter(url, "meta");
        let with_journal = |notation: &str| {
            let limits = Policy::parse(notation).expect("a notation").limits().to_vec();
            Policy::new(limits, Options { journal: 9, ..Options::default() }).expect("a policy")
        };
        let (rate, holds) = (with_journal("10/hour"), with_journal("concurrency 3"));
        let meta = |text: &str| CheckOptions { meta: Some(text.into()), ..CheckOptions::default() };
        assert!(limiter.acquire_with(&rate, "k", &meta("acquired"), None).expect("a decision").allowed());
        let held = limiter.hold_with(&holds, "k", &meta("held")).expect("an answer");
        assert!(matches!(held, HoldAnswer::Held(_)));
        let whole = limiter.check_all([(&rate, "k", meta("one of several"))]).expect("a decision");
        assert!(whole.allowed());
        let journal = |policy: &Policy| -> Vec<String> {
            let attempts = limiter.journal(policy, "k").expect("a journal");
            let text = |meta: Option<Box<[u8]>>| String::from_utf8(meta.unwrap_or_default().into()).expect("text");
            attempts.into_iter().map(|attempt| text(attempt.meta.map(Into::into))).collect()
        };
        assert_eq!(journal(&rate), ["one of several", "acquired"]);
        assert_eq!(journal(&holds), ["held"]);
        let partial = CheckOptions { partial: true, ..CheckOptions::default() };
        let errors = [
            limiter.acquire_with(&rate, "k", &partial, None).err(),
            limiter.hold_with(&holds, "k", &partial).err(),
            limiter.check_all([(&rate, "k", partial.clone())]).err(),
        ];
        for error in errors {
            let error = error.expect("it cannot be partial");
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        }
    }
}

#[test]
fn of_several_each_is_settled_by_what_it_counts() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        let limiter = limiter(url, "several");
        let policies = [("rpm", "60/hour"), ("tpm", "1000/hour"), ("tpd", "9000/day")];
        let policies = policies.map(|(name, notation)| {
            let policy = Policy::parse(notation).expect("a notation");
            policy.named(name).expect("a name")
        });
        let all = |key: &str| {
            let entries = [(&policies[0], key, 1), (&policies[1], key, 500), (&policies[2], key, 500)];
            limiter.check_all(entries).expect("a decision")
        };
        let left =
            |key: &str| policies.each_ref().map(|policy| limiter.peek(policy, key, 1).expect("a peek").remaining());
        limiter.settle(&all("one"), 300).expect("settled");
        assert_eq!(left("one"), [59, 700, 8_700], "one number is what the work has cost");
        let decision = all("each");
        let error = limiter.settle_each(&decision, &[None, Some(300)]).expect_err("two numbers for three entries");
        assert_eq!(error.kind(), ErrorKind::CostInvalid, "{error}");
        limiter.settle_each(&decision, &[Some(0), Some(700), None]).expect("settled");
        assert_eq!(left("each"), [60, 300, 8_500]);
        limiter.settle_each(&decision, &[None, None, Some(0)]).expect_err("a Decision is settled once");
        // If no entry has another cost, the number is for all.
        let (one, two) = ((&policies[0], "all", 1), (&policies[1], "all", 1));
        limiter.settle(&limiter.check_all([one, two]).expect("a decision"), 3).expect("settled");
        assert_eq!(left("all"), [57, 997, 9_000]);
        let held = limiter.hold("concurrency 8", "k", 1).expect("an answer").held().expect("room");
        limiter.settle(held.decision(), 5).expect("settled");
        assert_eq!(
            limiter.peek("concurrency 8", "k", 1).expect("a peek").remaining(),
            7,
            "units are held, never charged"
        );
    }
}
