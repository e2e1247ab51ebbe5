//! Usage before, during and after an outage, with `on_store_error` = `local`.

use std::time::Duration;

use serde_json::json;
use tidegate::{Policy, Source};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wall_clock::hours_of_a_window_far_from_its_end;

use super::{ChangeLog, SECOND, builder, clock, soon, warm};

#[test]
fn every_algorithm_continues_from_the_last_known_usage() {
    let server = Servers::start_with(Kind::Single, json!({"clock": true}));
    // The clocks are two hours apart: without a shift of all moments a window would be over, or would never end.
    server.clock(0, 7_200.0);
    // At midnight UTC the usage of `sliding-counter 10/day` would begin to fade, however soon that is.
    let sliding_counter = format!("sliding-counter 10/{}h", hours_of_a_window_far_from_its_end());
    let algorithms = [
        "fixed-window 10/day",
        "sliding-window 10/day",
        "sliding-log 10/day",
        "token-bucket 10/day",
        "gcra 10/day",
        "leaky-bucket 10/day",
        sliding_counter.as_str(),
        "10/day; 20/week",
    ];
    for tasks in [false, true] {
        let prefix = format!("known{tasks}");
        let limiter = warm(builder(server.url()).prefix(prefix), tasks);
        for policy in algorithms {
            assert_eq!(limiter.check(policy, "some", 7, None).expect("a decision").source(), Source::Store);
            assert!(!limiter.check(policy, "refused", 11, None).expect("a decision").allowed());
            limiter.charge(policy, "debt", 15).expect("a charge");
            let all =
                [(policy.to_owned(), "one of all".to_owned(), 4), (policy.to_owned(), "two of all".to_owned(), 6)];
            assert!(limiter.check_all(&all).expect("a decision").allowed());
            limiter.check(policy, "given back", 9, None).expect("a decision");
            limiter.refund(policy, "given back", 5).expect("a refund");
        }
        server.stop(0);
        for policy in algorithms {
            for (key, left) in [
                ("some", 3),
                ("refused", 10),
                ("debt", 0),
                ("one of all", 6),
                ("two of all", 4),
                ("given back", 6),
                ("new", 10),
            ] {
                let decision = limiter.peek(policy, key, 1).expect("a decision");
                assert_eq!((decision.remaining(), decision.source()), (left, Source::Fallback), "{policy}, {key}");
                let wait = decision.retry_after().expect("a time");
                assert!(wait <= Duration::from_secs(7 * 86_400), "{policy}, {key}: {wait:?}");
                assert!(left > 0 || wait > Duration::from_secs(3_600), "{policy}, {key}: {wait:?}");
            }
        }
        server.cont(0);
        soon("the server answers", || limiter.ping().is_ok());
    }
}

#[test]
fn blocks_continue_and_changed_numbers_keep_the_usage() {
    let server = Servers::start(Kind::Single);
    let limiter = warm(builder(server.url()).clock(clock()), false);
    limiter.check("fixed-window 10/day", "blocked", 1, None).expect("a decision");
    limiter.block("fixed-window 10/day", "blocked", 60 * SECOND).expect("a block");
    let version = |notation| Policy::parse(notation).expect("a policy").named("changes").expect("a name");
    limiter.check(version("fixed-window 10/day; 5/hour"), "k", 4, None).expect("a decision");
    server.kill(0);
    let blocked = limiter.check("fixed-window 10/day", "blocked", 1, None).expect("a decision");
    assert_eq!((blocked.allowed(), blocked.retry_after()), (false, Some(60 * SECOND)), "by the clock that was given");
    let changed = limiter.peek(version("gcra 3/s; fixed-window 6/day"), "k", 1).expect("a decision");
    assert_eq!(changed.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [3, 2]);
}

#[test]
fn recovery_charges_nothing_twice() {
    for empty in [false, true] {
        let server = Servers::start(Kind::Single);
        let changes = ChangeLog::default();
        let limiter = warm(changes.record(builder(server.url())).clock(clock()), false);
        let check = |cost| limiter.check("fixed-window 100/day", "k", cost, None).expect("a decision");
        assert_eq!(check(10).remaining(), 90);
        // A killed server has run none of the failed calls. A stopped one may have.
        server.kill(0);
        let (during, cheaper, dearer) = (check(20), check(5), check(5));
        assert_eq!((dearer.remaining(), dearer.source()), (60, Source::Fallback));
        limiter.settle(&during, 10).expect("settled here");
        assert_eq!(check(1).remaining(), 69, "the settlement counts where the check did");
        server.start_again(0);
        soon("it is back", || check(1).source() == Source::Store);
        let peek = || limiter.peek("fixed-window 100/day", "k", 1).expect("a decision").remaining();
        assert_eq!(peek(), 99, "restarted empty, it has counted the last check alone");
        limiter.settle(&cheaper, 0).expect("nothing to settle any more");
        limiter.settle(&dearer, 90).expect("nothing to settle any more");
        assert_eq!(peek(), 99, "charges of the outage are not refunded to a store that never charged them");
        if empty {
            // The next outage continues from the last answer of the store, not from the last outage.
            server.kill(0);
            assert_eq!(peek(), 99);
        }
        assert!(changes.states().iter().all(|state| ["lost", "back"].contains(state)), "{:?}", changes.states());
    }
}

#[test]
fn usage_of_an_outage_stays_known_until_the_store_answers() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let limiter = warm(changes.record(builder(server.url())), false);
    let check = |key| limiter.check("fixed-window 10/day", key, 4, None).expect("a decision");
    check("k");
    server.kill(0);
    soon("it is lost", || {
        limiter.check("1/s", "other", 1, None).expect("a decision");
        changes.states() == ["lost"]
    });
    assert_eq!(check("k").remaining(), 2);
    server.start_again(0);
    soon("it is back", || changes.states() == ["lost", "back"]);
    server.kill(0);
    let decision = check("k");
    assert_eq!((decision.allowed(), decision.remaining()), (false, 2), "a short recovery gives no new quota");
}

#[test]
fn earlier_holds_keep_counting_and_holds_of_an_outage_are_never_released_in_the_store() {
    for tasks in [false, true] {
        let server = Servers::start(Kind::Single);
        let clock = clock();
        let limiter = builder(server.url()).clock(clock.clone());
        let policy = "concurrency 3 ttl 30s";
        let limiter = warm(limiter, tasks);
        let hold = || limiter.hold(policy, "k", 1).expect("an answer").held();
        let before = hold().expect("room");
        let also = hold().expect("room");
        server.kill(0);
        let during = hold().expect("the third");
        assert_eq!(during.decision().source(), Source::Fallback);
        assert!(hold().is_none(), "two earlier holds and one of the outage");
        // Longer than any ttl: all three are renewed here.
        for _ in 0..8 {
            clock.advance(Duration::from_secs(9));
        }
        assert!(hold().is_none(), "holds last while they are renewed");
        drop(also);
        let fourth = hold().expect("one was released");
        drop(fourth);
        server.start_again(0);
        soon("it is back", || limiter.peek(policy, "k", 1).expect("a peek").source() == Source::Store);
        clock.advance(Duration::from_secs(9));
        assert_eq!(limiter.peek(policy, "k", 1).expect("a peek").remaining(), 3, "the server was restarted empty");
        drop((before, during));
        clock.advance(Duration::from_secs(40));
        let [one, two, three] = [hold(), hold(), hold()];
        assert!(one.is_some() && two.is_some() && three.is_some() && hold().is_none(), "nothing was released twice");
    }
}
