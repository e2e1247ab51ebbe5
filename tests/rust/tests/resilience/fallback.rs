//! What a check answers when the store fails.

use std::time::Duration;

use serde_json::json;
use tidegate::OnStoreError::{self, Closed, Local, Open, Raise};
use tidegate::{Builder, ErrorKind, Limiter, Options, Policy, Source};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::lateness::retry_if_stalled;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wall_clock::hours_of_a_window_far_from_its_end;

use super::{Told, builder, clock, soon};

const SECOND: Duration = Duration::from_secs(1);

fn policy(notation: &str, choice: OnStoreError) -> Policy {
    let limits = Policy::parse(notation).expect("a policy").limits().to_vec();
    let options = Options { on_store_error: Some(choice), ..Options::default() };
    Policy::new(limits, options).expect("a policy").named(format!("{notation} {choice}")).expect("a name")
}

/// A limiter whose first contact may take as long as it likes.
fn warm(builder: Builder, tasks: bool) -> AnyLimiter {
    let limiter = AnyLimiter::new(builder, tasks).expect("a limiter");
    soon("the server answers", || limiter.ping().is_ok());
    limiter
}

#[test]
fn each_choice_is_kept_whether_the_server_is_killed_or_silent() {
    retry_if_stalled(|| {
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

                    // Three of five were used before: what is known goes on.
                    let decision = limiter.check(local, "k", 1, None).expect("a decision");
                    assert_eq!((decision.allowed(), decision.source()), (round < 2, Source::Fallback), "round {round}");
                    assert!(!decision.unavailable(), "a limit refused, the store is not to blame");
                    let wait = decision.retry_after().expect("a time");
                    assert!(round < 2 || wait > Duration::from_secs(3_500) && wait <= Duration::from_secs(3_600));
                }
                // Who administers is told the truth, whatever the policy chose.
                for policy in &policies {
                    let failures = [
                        limiter.block(policy, "k", SECOND).expect_err("it fails"),
                        limiter.unblock(policy, "k").expect_err("it fails"),
                        limiter.clear(policy, "k").expect_err("it fails"),
                    ];
                    assert!(failures.iter().all(|error| error.kind() == kind), "{failures:?}");
                }
                assert_eq!(limiter.ping().expect_err("it fails").kind(), kind);
                // The caller's own mistakes stay the caller's.
                assert_eq!(
                    limiter.check("open", "k", 1, None).expect_err("no policy").kind(),
                    ErrorKind::PolicyUnknown
                );
                assert_eq!(limiter.check(open, "k", 0, None).expect_err("no cost").kind(), ErrorKind::CostInvalid);
                limiter.close();
                assert_eq!(limiter.check(open, "k", 1, None).expect_err("closed").kind(), ErrorKind::Closed);
            }
        }
    });
}

#[test]
fn the_limiter_chooses_for_policies_that_do_not() {
    retry_if_stalled(|| {
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
    });
}

#[test]
fn every_algorithm_goes_on_from_what_was_known() {
    retry_if_stalled(|| {
        let server = Servers::start_with(Kind::Single, json!({"clock": true}));
        // Two hours apart: moments must be shifted, or a window would be over, or never be.
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
            "concurrency 10 ttl 1d",
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
    });
}

#[test]
fn blocks_go_on_and_changed_numbers_keep_what_was_used() {
    retry_if_stalled(|| {
        let server = Servers::start(Kind::Single);
        let limiter = warm(builder(server.url()).clock(clock()), false);
        limiter.check("fixed-window 10/day", "blocked", 1, None).expect("a decision");
        limiter.block("fixed-window 10/day", "blocked", 60 * SECOND).expect("a block");
        let version = |notation| Policy::parse(notation).expect("a policy").named("changes").expect("a name");
        limiter.check(version("fixed-window 10/day; 5/hour"), "k", 4, None).expect("a decision");
        server.kill(0);
        let blocked = limiter.check("fixed-window 10/day", "blocked", 1, None).expect("a decision");
        assert_eq!(
            (blocked.allowed(), blocked.retry_after()),
            (false, Some(60 * SECOND)),
            "by the clock that was given"
        );
        let changed = limiter.peek(version("gcra 3/s; fixed-window 6/day"), "k", 1).expect("a decision");
        assert_eq!(changed.limits().map(|limit| limit.remaining).collect::<Vec<_>>(), [3, 2]);
    });
}

#[test]
fn the_way_back_charges_nothing_twice() {
    retry_if_stalled(|| {
        for empty in [false, true] {
            let server = Servers::start(Kind::Single);
            let told = Told::default();
            let limiter = warm(told.listen(builder(server.url())).clock(clock()), false);
            let check = |cost| limiter.check("fixed-window 100/day", "k", cost, None).expect("a decision");
            assert_eq!(check(10).remaining(), 90);
            // A server that is killed has run nothing of what failed; a frozen one may have.
            server.kill(0);
            let during = check(30);
            assert_eq!((during.remaining(), during.source()), (60, Source::Fallback));
            limiter.settle(&during, 20).expect("settled here");
            assert_eq!(check(1).remaining(), 69, "the settlement counts where the check did");
            server.start_again(0);
            soon("it is back", || check(1).source() == Source::Store);
            let peek = || limiter.peek("fixed-window 100/day", "k", 1).expect("a decision").remaining();
            assert_eq!(peek(), 99, "restarted empty, it knows of the last check and of no other");
            limiter.settle(&during, 0).expect("nothing to settle any more");
            limiter.settle(&during, 90).expect("nothing to settle any more");
            assert_eq!(peek(), 99, "what the outage charged is not given back to a store that never charged it");
            if empty {
                // The next outage goes on from the store's word, not from what was counted in the last one.
                server.kill(0);
                assert_eq!(peek(), 99);
            }
            assert!(told.words().iter().all(|word| ["lost", "back"].contains(word)), "{:?}", told.words());
        }
    });
}

#[test]
fn what_an_outage_counted_stays_known_until_the_store_says_more() {
    retry_if_stalled(|| {
        let server = Servers::start(Kind::Single);
        let told = Told::default();
        let limiter = warm(told.listen(builder(server.url())), false);
        let check = |key| limiter.check("fixed-window 10/day", key, 4, None).expect("a decision");
        check("k");
        server.kill(0);
        soon("it is lost", || {
            limiter.check("1/s", "other", 1, None).expect("a decision");
            told.words() == ["lost"]
        });
        assert_eq!(check("k").remaining(), 2);
        server.start_again(0);
        soon("it is back", || told.words() == ["lost", "back"]);
        server.kill(0);
        let decision = check("k");
        assert_eq!((decision.allowed(), decision.remaining()), (false, 2), "a short return gives nobody a new quota");
    });
}

#[test]
fn check_all_of_different_choices() {
    retry_if_stalled(|| {
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
        assert_eq!(
            limiter.peek(&local, "k", 1).expect("a peek").remaining(),
            5,
            "a whole that is denied charges nothing"
        );
        for left in [3, 1, 1] {
            let decision = all(&[&open, &local]).expect("a decision");
            assert_eq!(decision.source(), Source::Fallback);
            assert_eq!(decision.decisions()[1].remaining(), left);
            assert!(!decision.unavailable());
        }
    });
}

#[test]
fn holds_of_before_keep_counting_and_holds_of_an_outage_harm_nobody() {
    retry_if_stalled(|| {
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
            assert!(hold().is_none(), "two of before and one of now");
            // Longer than any ttl: all three are renewed here.
            for _ in 0..8 {
                clock.advance(Duration::from_secs(9));
            }
            assert!(hold().is_none(), "holds live on while they are renewed");
            drop(also);
            let fourth = hold().expect("one was given back");
            drop(fourth);
            server.start_again(0);
            soon("it is back", || limiter.peek(policy, "k", 1).expect("a peek").source() == Source::Store);
            clock.advance(Duration::from_secs(9));
            assert_eq!(limiter.peek(policy, "k", 1).expect("a peek").remaining(), 3, "the server was restarted empty");
            drop((before, during));
            clock.advance(Duration::from_secs(40));
            let [one, two, three] = [hold(), hold(), hold()];
            assert!(
                one.is_some() && two.is_some() && three.is_some() && hold().is_none(),
                "nothing was given back twice"
            );
        }
    });
}

#[test]
fn a_server_that_refuses_is_answered_for_too() {
    retry_if_stalled(|| {
        let server = Servers::start(Kind::Single);
        let told = Told::default();
        let clock = clock();
        let builder = told.listen(builder(server.url())).clock(clock).deny_cache(Duration::ZERO);
        let limiter = warm(builder, false);
        let check = |policy: &str, key: &str| limiter.check(policy, key, 1, None);
        check("5/hour", "k").expect("a decision");
        let limit = |bytes: &str| drop(server.command(0, &["CONFIG", "SET", "maxmemory", bytes]));
        limit("1");
        for left in [3, 2, 1] {
            let decision = check("5/hour", "k").expect("a decision");
            assert_eq!((decision.source(), decision.remaining()), (Source::Fallback, left));
        }
        assert_eq!(told.words(), ["refusing"]);
        assert!(told.all()[0].sentence.contains("OOM"), "{:?}", told.all());
        limit("0");
        // Who refused a moment ago still refuses: the word comes when it has been quiet for a second.
        soon("it is back", || {
            assert_eq!(check("5/hour", "other").expect("a decision").source(), Source::Store);
            told.words() == ["refusing", "back"]
        });
        assert!(limiter.ping().is_ok());
    });
}

#[test]
fn one_bad_key_concerns_only_itself() {
    retry_if_stalled(|| {
        let server = Servers::start(Kind::Single);
        let told = Told::default();
        let limiter = warm(told.listen(builder(server.url())).deny_cache(Duration::ZERO), false);
        let raises = policy("5/hour", Raise);
        limiter.check(&raises, "bad", 1, None).expect("a decision");
        // All but what a ping leaves for a second.
        let swap = "for _, key in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', key) > 60000 then \
        redis.call('DEL', key) redis.call('RPUSH', key, 'x') end end return 1";
        server.command(0, &["EVAL", swap, "0"]);
        for _ in 0..20 {
            assert_eq!(limiter.check(&raises, "bad", 1, None).expect_err("a list").kind(), ErrorKind::StoreRejected);
            assert_eq!(limiter.check("5/hour", "good", 1, None).expect("a decision").source(), Source::Store);
        }
        assert_eq!(told.words(), Vec::<&str>::new(), "the server is well");
    });
}

#[test]
fn nothing_waits_for_a_store_that_is_lost() {
    retry_if_stalled(|| {
        let server = Servers::start(Kind::Single);
        let limiter = builder(server.url()).build_async().expect("a limiter");
        server.stop(0);
        let runtime = tidegate_tests::any_limiter::runtime();
        for _ in 0..3 {
            runtime.block_on(limiter.check("5/hour", "k")).expect("a decision");
        }
        // Polled once: an answer that is not there at once would be pending.
        let mut polled = std::task::Context::from_waker(std::task::Waker::noop());
        let mut check = std::pin::pin!(limiter.check("5/hour", "k"));
        match std::future::Future::poll(check.as_mut(), &mut polled) {
            std::task::Poll::Ready(decision) => assert_eq!(decision.expect("a decision").source(), Source::Fallback),
            std::task::Poll::Pending => panic!("it waits"),
        }
    });
}

#[test]
fn a_program_without_a_server_starts() {
    retry_if_stalled(|| {
        let port = {
            let server = Servers::start(Kind::Single);
            server.port(0)
        };
        let limiter = Limiter::builder().store(format!("redis://127.0.0.1:{port}")).build().expect("a limiter");
        for left in [4, 3, 2, 1, 0, 0] {
            assert_eq!(limiter.check("5/hour", "k").expect("a decision").remaining(), left);
        }
    });
}
