//! Keys with overrides, behind the layers around a shared store.

use std::time::Duration;

use tidegate::{ErrorKind, KeyOverride, Limiter, OnStoreError, Source};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::{Kind, Servers};

use super::{TIMEOUT, builder, clock, soon, warm};

const PATIENT: Duration = Duration::from_secs(10);
const POLICY: &str = "fixed-window 2/hour";

fn own(text: &str) -> KeyOverride {
    KeyOverride::parse(text).expect("limits")
}

/// The number of checks out of ten that are admitted, and the source of the answers.
fn admitted(limiter: &AnyLimiter, key: &str) -> (usize, Source) {
    let decisions: Vec<_> = (0..10).map(|_| limiter.check(POLICY, key, 1, None).expect("a decision")).collect();
    (decisions.iter().filter(|decision| decision.allowed()).count(), decisions[0].source())
}

#[test]
fn a_lost_store_leaves_the_numbers_that_the_process_knows() {
    for tasks in [false, true] {
        let server = Servers::start(Kind::Single);
        let made = || warm(builder(server.url()).on_store_error(OnStoreError::Local).deny_cache(Duration::ZERO), tasks);
        let (limiter, other) = (made(), made());
        for (key, text) in [("alice", "fixed-window 5/hour"), ("bob", "none"), ("carol", "fixed-window 1/hour")] {
            limiter.set_override(POLICY, key, Some(&own(text)), None).expect("an override");
        }
        assert_eq!(limiter.check(POLICY, "alice", 2, None).expect("a decision").remaining(), 3);
        server.kill(0);
        // alice has used 2 of 5 units, and the usage goes on. A limiter that has not asked gets no override any more.
        assert_eq!(admitted(&limiter, "alice"), (3, Source::Fallback));
        assert_eq!(admitted(&limiter, "bob"), (10, Source::Fallback));
        assert_eq!(admitted(&limiter, "carol"), (1, Source::Fallback));
        assert_eq!(admitted(&other, "carol"), (2, Source::Fallback));
        let lost = [
            limiter.set_override(POLICY, "dave", Some(&own("9/hour")), None).expect_err("it fails"),
            limiter.set_override(POLICY, "alice", None, None).expect_err("it fails"),
            limiter.overrides(POLICY).map(|_| ()).expect_err("it fails"),
        ];
        for error in lost {
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
        }
        // An override that could not be stored is not known, and one that could not be removed is still known.
        assert_eq!(admitted(&limiter, "dave"), (2, Source::Fallback));
        let known = limiter.peek(POLICY, "alice", 1).expect("a decision");
        assert_eq!((known.limit(), known.overridden()), (5, true));
        server.start_again(0);
        // The server is empty, so the limits of the policy count.
        let back = || limiter.peek(POLICY, "alice", 1).expect("a decision");
        soon("the store answers", || back().source() == Source::Store);
        assert_eq!((back().limit(), back().overridden()), (2, false));
    }
}

#[test]
fn each_key_of_shards_has_its_numbers_and_the_list_has_all() {
    let servers = [(); 3].map(|()| Servers::start(Kind::Single));
    for tasks in [false, true] {
        let limiter = |order: [usize; 3]| {
            let builder =
                Limiter::builder().stores(order.map(|index| servers[index].url())).prefix(format!("o{tasks}"));
            AnyLimiter::new(builder.timeout(PATIENT).deny_cache(Duration::ZERO), tasks).expect("a limiter")
        };
        let (here, there) = (limiter([0, 1, 2]), limiter([2, 0, 1]));
        let keys: Vec<String> = (10..70).map(|number| format!("key {number}")).collect();
        for key in &keys {
            here.set_override(POLICY, key, Some(&own("fixed-window 5/hour")), None).expect("an override");
        }
        for key in &keys {
            assert_eq!(admitted(&there, key).0, 5, "{key}");
        }
        let listed: Vec<String> = there.overrides(POLICY).expect("a list").into_iter().map(|own| own.key).collect();
        assert_eq!(listed, keys);
        // All or nothing, over keys of several servers. The first call does not know their numbers.
        let fresh = limiter([1, 2, 0]);
        let entries: Vec<(String, String, u64)> =
            (0..30).map(|number| (POLICY.to_owned(), format!("new {number}"), 4)).collect();
        assert!(!fresh.check_all(&entries).expect("a decision").allowed());
        for (_, key, _) in &entries {
            here.set_override(POLICY, key, Some(&own("fixed-window 5/hour")), None).expect("an override");
        }
        assert!(fresh.check_all(&entries).expect("a decision").allowed());
        assert!(!fresh.check_all(&entries).expect("a decision").allowed());
        assert_eq!(fresh.peek(POLICY, "new 7", 1).expect("a decision").remaining(), 1);
        for key in &keys {
            there.set_override(POLICY, key, None, None).expect("a removal");
        }
        assert_eq!(here.overrides(POLICY).expect("a list").len(), 30);
        assert!(keys.iter().all(|key| !here.peek(POLICY, key, 1).expect("a decision").overridden()));
    }
}

#[test]
fn a_key_that_a_rollout_moves_keeps_its_numbers() {
    for tasks in [false, true] {
        let (old, new) = (Servers::start(Kind::Single), Servers::start(Kind::Single));
        let builder = Limiter::builder().rollout(old.url(), new.url(), 0.0).timeout(PATIENT).clock(clock());
        let limiter = AnyLimiter::new(builder.deny_cache(Duration::ZERO), tasks).expect("a limiter");
        let set = |percent: f64| limiter.set_rollout(percent).expect("a share");
        let numbers = |key: &str| {
            let decision = limiter.peek(POLICY, key, 1).expect("a decision");
            (decision.limit(), decision.overridden())
        };
        let keys =
            || -> Vec<String> { limiter.overrides(POLICY).expect("a list").into_iter().map(|own| own.key).collect() };
        limiter.set_override(POLICY, "alice", Some(&own("fixed-window 5/hour")), None).expect("an override");
        set(100.0);
        assert_eq!((numbers("alice"), keys()), ((5, true), vec!["alice".to_owned()]));
        // One override is set while the key is on the new store, and one is removed there.
        limiter.set_override(POLICY, "bob", Some(&own("fixed-window 7/hour")), None).expect("an override");
        limiter.set_override(POLICY, "alice", None, None).expect("a removal");
        assert_eq!(keys(), ["bob"]);
        set(0.0);
        assert_eq!((numbers("alice"), numbers("bob")), ((2, false), (7, true)));
        assert_eq!(keys(), ["bob"]);
        // Halfway, each key has its override on either store.
        set(50.0);
        for number in 0..20 {
            let key = format!("key {number}");
            limiter.set_override(POLICY, &key, Some(&own("fixed-window 9/hour")), None).expect("an override");
        }
        for percent in [0.0, 50.0, 100.0] {
            set(percent);
            assert!((0..20).all(|number| numbers(&format!("key {number}")) == (9, true)), "at {percent} %");
            assert_eq!(keys().len(), 21);
        }
    }
}

#[test]
fn a_rollout_whose_new_store_is_lost_says_so_and_keeps_the_old_one() {
    let (old, new) = (Servers::start(Kind::Single), Servers::start(Kind::Single));
    let builder = Limiter::builder().rollout(old.url(), new.url(), 0.0).timeout(TIMEOUT);
    let limiter = warm(builder.on_store_error(OnStoreError::Raise).deny_cache(Duration::ZERO), false);
    new.kill(0);
    let error = limiter.set_override(POLICY, "alice", Some(&own("fixed-window 5/hour")), None).expect_err("it fails");
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    // The key's own store has it, because the store of the key's calls is asked first.
    assert_eq!(limiter.peek(POLICY, "alice", 1).expect("a decision").limit(), 5);
}
