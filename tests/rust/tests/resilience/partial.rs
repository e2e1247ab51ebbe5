//! Partial checks on a server: one round trip, denials that the deny cache repeats, and units that a lost store grants.

use std::time::Duration;

use tidegate::{Decision, ErrorKind, OnStoreError, Options, Policy, Source};
use tidegate_tests::any_limiter::{AnyLimiter, fresh_prefix};
use tidegate_tests::mutating_proxy::{MutatingProxy, Mutation};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

use super::{SECOND, builder, clock, scripts, warm};

const PATIENT: Duration = Duration::from_secs(10);

fn said(decision: &Decision) -> (u64, bool, Source) {
    (decision.granted(), decision.allowed(), decision.source())
}

#[test]
fn a_partial_check_is_one_script_call() {
    let server = Servers::start(Kind::Single);
    for is_async in [false, true] {
        let limiter = warm(builder(server.url()).timeout(PATIENT).prefix(fresh_prefix()).clock(clock()), is_async);
        let before = scripts(&server);
        let decision = limiter.take("5/hour; gcra 3/s; sliding-log 9/minute", "k", 8, None).expect("a decision");
        assert_eq!(said(&decision), (3, true, Source::Store));
        assert_eq!(scripts(&server) - before, 1);
    }
}

#[test]
fn only_the_denial_of_one_unit_answers_a_partial_check() {
    let server = Servers::start(Kind::Single);
    for is_async in [false, true] {
        let clock = clock();
        let builder = builder(server.url()).timeout(PATIENT).prefix(fresh_prefix()).clock(clock.clone());
        let limiter = warm(builder, is_async);
        for policy in ["fixed-window 5/hour", "5/hour", "sliding-log 5/hour", "gcra 5/hour", "token-bucket 5/hour"] {
            assert!(limiter.check(policy, "k", 3, None).expect("a decision").allowed());
            // Denials of larger costs are known, and two units are free.
            for cost in [3, 4, 5, 6] {
                assert!(!limiter.check(policy, "k", cost, None).expect("a decision").allowed());
                let again = limiter.check(policy, "k", cost, None).expect("a decision");
                assert_eq!(again.source(), Source::DenyCache, "{policy} {cost}");
            }
            let part = limiter.take(policy, "k", 6, None).expect("a decision");
            assert_eq!(said(&part), (2, true, Source::Store), "{policy}");
            // Nothing is left. The cache repeats that for any cost, and also for a check of one unit.
            let before = scripts(&server);
            let none = limiter.take(policy, "k", 6, None).expect("a decision");
            assert_eq!(said(&none), (0, false, Source::Store), "{policy}");
            for cost in [6, 1, 4] {
                let again = limiter.take(policy, "k", cost, None).expect("a decision");
                assert_eq!(said(&again), (0, false, Source::DenyCache), "{policy}");
                assert_eq!((again.cost(), again.retry_after()), (cost, none.retry_after()), "{policy}");
                assert_eq!(again.next_after(), again.retry_after());
            }
            let one = limiter.check(policy, "k", 1, None).expect("a decision");
            assert_eq!((one.source(), one.retry_after()), (Source::DenyCache, none.retry_after()), "{policy}");
            assert_eq!(scripts(&server) - before, 1, "{policy}");
            // Units that come back are granted at once.
            limiter.refund(policy, "k", 1).expect("a refund");
            let part = limiter.take(policy, "k", 6, None).expect("a decision");
            assert_eq!(said(&part), (1, true, Source::Store), "{policy}");
        }
    }
}

#[test]
fn the_denial_of_one_unit_answers_a_partial_check_until_its_moment() {
    let server = Servers::start(Kind::Single);
    let clock = clock();
    let limiter = warm(builder(server.url()).timeout(PATIENT).clock(clock.clone()), false);
    limiter.check("gcra 4/s", "k", 4, None).expect("a decision");
    assert!(!limiter.check("gcra 4/s", "k", 1, None).expect("a decision").allowed());
    let again = limiter.take("gcra 4/s", "k", 3, None).expect("a decision");
    assert_eq!(said(&again), (0, false, Source::DenyCache));
    clock.advance(again.next_after().expect("a time"));
    assert_eq!(said(&limiter.take("gcra 4/s", "k", 3, None).expect("a decision")), (1, true, Source::Store));
}

fn choosing(choice: OnStoreError) -> Policy {
    let limits = Policy::parse("fixed-window 5/hour").expect("a policy").limits().to_vec();
    let options = Options { on_store_error: Some(choice), ..Options::default() };
    Policy::new(limits, options).expect("a policy").named(choice.to_string()).expect("a name")
}

#[test]
fn a_lost_store_grants_what_its_policy_chose() {
    for is_async in [false, true] {
        let server = Servers::start(Kind::Single);
        let limiter = warm(builder(server.url()), is_async);
        let policies = OnStoreError::ALL.map(choosing);
        for policy in &policies {
            assert_eq!(limiter.check(policy, "k", 2, None).expect("a decision").granted(), 2);
        }
        server.kill(0);
        let take = |policy: &Policy, cost| limiter.take(policy, "k", cost, None);
        let of = |choice| policies.iter().find(|policy| policy.name() == choice).expect("each choice");
        assert_eq!(take(of("raise"), 9).expect_err("it raises").kind(), ErrorKind::StoreUnavailable);
        assert_eq!(said(&take(of("open"), 9).expect("a decision")), (9, true, Source::Fallback));
        let closed = take(of("closed"), 9).expect("a decision");
        assert_eq!((said(&closed), closed.unavailable()), ((0, false, Source::Fallback), true));
        assert_eq!((closed.retry_after(), closed.next_after()), (Some(SECOND), Some(SECOND)));
        // Two of five units were used before.
        assert_eq!(said(&take(of("local"), 9).expect("a decision")), (3, true, Source::Fallback));
        let none = take(of("local"), 9).expect("a decision");
        assert_eq!((said(&none), none.unavailable()), ((0, false, Source::Fallback), false));
        // A charge of a policy that is closed was not made.
        assert_eq!(limiter.charge(of("closed"), "k", 4).expect("a decision").granted(), 0);
        assert_eq!(limiter.charge(of("local"), "k", 4).expect("a decision").granted(), 4);
    }
}

/// The granted units decide what the caller does, so an impossible number is an error and never a Decision.
#[test]
fn a_grant_that_cannot_be_is_an_error() {
    let server = Servers::start(Kind::Single);
    let port = server.port(0);
    const WRONG: [Mutation; 6] = [
        &[("pack('<d', granted)", "pack('<d', 7)")],
        &[("pack('<d', granted)", "pack('<d', 0)")],
        &[("pack('<d', granted)", "pack('<d', 1.5)")],
        &[("pack('<d', granted)", "pack('<d', -1)")],
        &[("pack('<d', granted)", "pack('<d', 0 / 0)")],
        &[("pack('<d', granted)", "''")],
    ];
    for mutation in WRONG {
        let ((_, wrong), proxy) = (mutation[0], MutatingProxy::to(port, mutation));
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let builder = builder(&url).timeout(PATIENT).prefix(fresh_prefix()).on_store_error(OnStoreError::Raise);
        let limiter = AnyLimiter::new(builder, false).expect("a limiter");
        wait_until(PATIENT, "the proxy knows the script", || {
            drop(limiter.check("9/s", "warm", 1, None));
            proxy.mutated() > 0
        });
        let error = limiter.take("5/hour", "k", 6, None).map(|decision| said(&decision)).expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::StoreRejected, "{wrong}: {error}");
    }
}
