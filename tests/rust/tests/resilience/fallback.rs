//! The answers of `on_store_error` while the store fails.

use std::time::Duration;

use tidegate::OnStoreError::{self, Closed, Local, Open, Raise};
use tidegate::{ErrorKind, Limiter, Options, Policy, Source};
use tidegate_tests::servers::{Kind, Servers};

use super::{ChangeLog, SECOND, builder, clock, soon, warm};

fn policy(notation: &str, choice: OnStoreError) -> Policy {
    let limits = Policy::parse(notation).expect("a policy").limits().to_vec();
    let options = Options { on_store_error: Some(choice), ..Options::default() };
    Policy::new(limits, options).expect("a policy").named(format!("{notation} {choice}")).expect("a name")
}

#[test]
fn each_choice_holds_whether_the_server_is_killed_or_stopped() {
    for frozen in [false, true] {
        for tasks in [false, true] {
            let server = Servers::start(Kind::Single);
            let limiter = warm(builder(server.url()), tasks);
            let policies = OnStoreError::ALL.map(|choice| policy("fixed-window 5/hour", choice));
            for policy in &policies {
                for _ in 0..3 {
                    assert_eq!(limiter.check(policy, "k", 1, None).expect("a decision").source(), Source::Store);
                }
            }
            if frozen {
                server.stop(0)
            } else {
                server.kill(0)
            }
            let kind = if frozen { ErrorKind::StoreTimeout } else { ErrorKind::StoreUnavailable };
            let [raise, open, closed, local] = &policies;
            for round in 0..4 {
                let error = limiter.check(raise, "k", 1, None).expect_err("it fails");
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(limiter.peek(raise, "k", 1).expect_err("it fails").kind(), kind);

                let decision = limiter.check(open, "k", 1, None).expect("a decision");
                assert!(decision.allowed() && decision.source() == Source::Fallback && !decision.unavailable());
                assert_eq!((decision.limit(), decision.remaining()), (5, 5), "as if unused");

                let decision = limiter.check(closed, "k", 1, None).expect("a decision");
                assert!(!decision.allowed() && decision.source() == Source::Fallback && decision.unavailable());
                assert_eq!(decision.retry_after(), Some(SECOND));
                assert_eq!(decision.denied_for(), None);
                assert_eq!(decision.limits().count(), 1, "every limit is named");

                // Three of five units were used before. The usage continues.
                let decision = limiter.check(local, "k", 1, None).expect("a decision");
                assert_eq!((decision.allowed(), decision.source()), (round < 2, Source::Fallback), "round {round}");
                assert!(!decision.unavailable(), "a limit refused, not the missing store");
                let wait = decision.retry_after().expect("a time");
                assert!(round < 2 || wait > Duration::from_secs(3_500) && wait <= Duration::from_secs(3_600));
            }
            // Administrative calls fail, whatever the policy chose.
            for policy in &policies {
                let failures = [
                    limiter.block(policy, "k", SECOND).expect_err("it fails"),
                    limiter.unblock(policy, "k").expect_err("it fails"),
                    limiter.clear(policy, "k").expect_err("it fails"),
                ];
                assert!(failures.iter().all(|error| error.kind() == kind), "{failures:?}");
            }
            assert_eq!(limiter.ping().expect_err("it fails").kind(), kind);
            // Errors of the caller stay errors.
            assert_eq!(limiter.check("open", "k", 1, None).expect_err("no policy").kind(), ErrorKind::PolicyUnknown);
            assert_eq!(limiter.check(open, "k", 0, None).expect_err("no cost").kind(), ErrorKind::CostInvalid);
            limiter.close();
            assert_eq!(limiter.check(open, "k", 1, None).expect_err("closed").kind(), ErrorKind::Closed);
        }
    }
}

#[test]
fn the_limiters_choice_is_the_default_of_its_policies() {
    let server = Servers::start(Kind::Single);
    server.kill(0);
    let allowed = |choice| {
        let limiter = builder(server.url()).on_store_error(choice).build().expect("a limiter");
        limiter.check("0/hour", "k").map(|decision| decision.allowed()).map_err(|error| error.kind())
    };
    assert_eq!(allowed(Raise), Err(ErrorKind::StoreUnavailable));
    assert_eq!(allowed(Open), Ok(true));
    assert_eq!(allowed(Closed), Ok(false));
    assert_eq!(allowed(Local), Ok(false), "count 0 denies here too");
}

#[test]
fn check_all_of_different_choices() {
    let server = Servers::start(Kind::Single);
    let limiter = builder(server.url()).build().expect("a limiter");
    let [raise, open, closed, local] = OnStoreError::ALL.map(|choice| policy("fixed-window 5/hour", choice));
    server.kill(0);
    let all = |policies: &[&Policy]| limiter.check_all(policies.iter().map(|policy| (*policy, "k", 2)));
    for _ in 0..2 {
        assert_eq!(all(&[&local, &raise]).expect_err("one raises").kind(), ErrorKind::StoreUnavailable);
        let decision = all(&[&open, &closed, &local]).expect("a decision");
        assert!(!decision.allowed() && decision.unavailable());
        assert_eq!(decision.decisions().iter().map(|each| each.allowed()).collect::<Vec<_>>(), [true, false, true]);
    }
    assert_eq!(limiter.peek(&local, "k", 1).expect("a peek").remaining(), 5, "a denied check_all charges nothing");
    for left in [3, 1, 1] {
        let decision = all(&[&open, &local]).expect("a decision");
        assert_eq!(decision.source(), Source::Fallback);
        assert_eq!(decision.decisions()[1].remaining(), left);
        assert!(!decision.unavailable());
    }
}

#[test]
fn a_server_that_refuses_to_write_has_a_fallback_too() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let clock = clock();
    let builder = changes.record(builder(server.url())).clock(clock).deny_cache(Duration::ZERO);
    let limiter = warm(builder, false);
    let check = |policy: &str, key: &str| limiter.check(policy, key, 1, None);
    check("5/hour", "k").expect("a decision");
    let limit = |bytes: &str| drop(server.command(0, &["CONFIG", "SET", "maxmemory", bytes]));
    limit("1");
    for left in [3, 2, 1] {
        let decision = check("5/hour", "k").expect("a decision");
        assert_eq!((decision.source(), decision.remaining()), (Source::Fallback, left));
    }
    assert_eq!(changes.states(), ["refusing"]);
    assert!(changes.all()[0].sentence.contains("OOM"), "{:?}", changes.all());
    limit("0");
    // The server may still refuse: the change is reported after a second without a refusal.
    soon("it is back", || {
        assert_eq!(check("5/hour", "other").expect("a decision").source(), Source::Store);
        changes.states() == ["refusing", "back"]
    });
    assert!(limiter.ping().is_ok());
}

#[test]
fn an_error_of_one_key_concerns_that_key_alone() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let limiter = warm(changes.record(builder(server.url())).deny_cache(Duration::ZERO), false);
    let raises = policy("5/hour", Raise);
    limiter.check(&raises, "bad", 1, None).expect("a decision");
    // All keys except those of a ping, which live for a second.
    let swap = "for _, key in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', key) > 60000 then \
    redis.call('DEL', key) redis.call('RPUSH', key, 'x') end end return 1";
    server.command(0, &["EVAL", swap, "0"]);
    for _ in 0..20 {
        assert_eq!(limiter.check(&raises, "bad", 1, None).expect_err("a list").kind(), ErrorKind::StoreRejected);
        assert_eq!(limiter.check("5/hour", "good", 1, None).expect("a decision").source(), Source::Store);
    }
    assert_eq!(changes.states(), Vec::<&str>::new(), "the server is well");
}

#[test]
fn no_call_waits_for_a_lost_store() {
    let server = Servers::start(Kind::Single);
    let limiter = builder(server.url()).build_async().expect("a limiter");
    server.stop(0);
    let runtime = tidegate_tests::any_limiter::runtime();
    for _ in 0..3 {
        runtime.block_on(limiter.check("5/hour", "k")).expect("a decision");
    }
    // Polled once: an answer that is not immediate would be pending.
    let mut polled = std::task::Context::from_waker(std::task::Waker::noop());
    let mut check = std::pin::pin!(limiter.check("5/hour", "k"));
    match std::future::Future::poll(check.as_mut(), &mut polled) {
        std::task::Poll::Ready(decision) => assert_eq!(decision.expect("a decision").source(), Source::Fallback),
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_program_without_a_server_starts() {
    let limiter = Limiter::builder().store("redis://127.0.0.1:1").build().expect("a limiter");
    for left in [4, 3, 2, 1, 0, 0] {
        assert_eq!(limiter.check("5/hour", "k").expect("a decision").remaining(), left);
    }
}
