//! Several servers that share the keys.

use std::time::Duration;

use tidegate::{ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::{Kind, Servers};

use super::{TIMEOUT, soon};

const KEYS: u64 = 60;

fn servers() -> [Servers; 3] {
    [(); 3].map(|()| Servers::start(Kind::Single))
}

fn limiter(servers: &[Servers], tasks: bool) -> AnyLimiter {
    let urls = servers.iter().map(Servers::url);
    let builder = Limiter::builder().stores(urls).timeout(TIMEOUT).deny_cache(Duration::ZERO);
    let limiter = AnyLimiter::new(builder.on_store_error(OnStoreError::Raise), tasks).expect("a limiter");
    soon("all servers answer", || limiter.ping().is_ok());
    limiter
}

fn keys(server: &Servers) -> i64 {
    // A ping leaves a key for a second.
    let count = "local count = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
        if redis.call('PTTL', key) > 60000 then count = count + 1 end end return count";
    server.command(0, &["EVAL", count, "0"]).as_i64().expect("a number")
}

#[test]
fn each_key_lives_on_one_server_and_all_have_some() {
    for tasks in [false, true] {
        let servers = servers();
        let sharded = limiter(&servers, tasks);
        for round in 1..=3 {
            for number in 0..60 {
                let decision =
                    sharded.check("fixed-window 3/hour", &format!("key {number}"), 1, None).expect("a decision");
                assert_eq!((decision.allowed(), decision.remaining()), (true, 3 - round));
            }
        }
        let held: Vec<i64> = servers.iter().map(keys).collect();
        assert!(held.iter().sum::<i64>() == 60 && held.iter().all(|keys| *keys > 5), "{held:?}");
        // In another order they are the same servers.
        let [a, b, c] = servers;
        let turned = [c, a, b];
        let again = limiter(&turned, tasks);
        for number in 0..60 {
            assert!(
                !again.check("fixed-window 3/hour", &format!("key {number}"), 1, None).expect("a decision").allowed()
            );
        }
    }
}

#[test]
fn check_all_charges_all_or_nothing() {
    for tasks in [false, true] {
        let servers = servers();
        let sharded = limiter(&servers, tasks);
        let policy = "fixed-window 10/hour";
        // Ports differ from run to run, and with them the keys of a server: of 60 keys each server has some.
        let cost_of = |number: u64| number % 3 + 1;
        let entries = |cost: u64| -> Vec<(String, String, u64)> {
            let wanted = |number: u64| {
                (policy.to_owned(), format!("key {number}"), if number == 9 { cost } else { cost_of(number) })
            };
            (0..KEYS).map(wanted).collect()
        };
        let left = || -> Vec<u64> {
            (0..KEYS)
                .map(|number| sharded.peek(policy, &format!("key {number}"), 1).expect("a peek").remaining())
                .collect()
        };
        let whole = sharded.check_all(&entries(4)).expect("a decision");
        assert!(whole.allowed() && whole.decisions().len() as u64 == KEYS);
        let charged = left();
        let expected = |number: u64| 10 - if number == 9 { 4 } else { cost_of(number) };
        assert_eq!(charged, (0..KEYS).map(expected).collect::<Vec<_>>());
        assert!(servers.iter().all(|server| keys(server) > 0));
        // One server denies: the others are refunded, and each entry has its own answer.
        let whole = sharded.check_all(&entries(7)).expect("a decision");
        assert!(!whole.allowed());
        assert_eq!(whole.key(), "key 9");
        let allowed: Vec<bool> = whole.decisions().iter().map(tidegate::Decision::allowed).collect();
        assert_eq!(allowed, (0..KEYS).map(|number| number != 9).collect::<Vec<_>>());
        assert_eq!(whole.decisions().iter().map(tidegate::Decision::remaining).collect::<Vec<_>>(), charged);
        assert_eq!(whole.decisions().iter().map(tidegate::Decision::granted).sum::<u64>(), 0);
        assert_eq!(left(), charged);
        // One server fails: the others are refunded. The failed call does not wait for that.
        let mut before = charged;
        for down in &servers {
            down.stop(0);
            assert_eq!(sharded.check_all(&entries(1)).expect_err("one is silent").kind(), ErrorKind::StoreTimeout);
            down.cont(0);
            soon("it answers", || sharded.ping().is_ok());
            // The stopped server may have run the call that timed out: with all of its entries, or with none.
            let of_stopped = keys(down) as usize;
            soon("the two others are refunded", || {
                let changed = before.iter().zip(left()).filter(|(before, after)| *before != after).count();
                changed == 0 || changed == of_stopped
            });
            before = left();
        }
    }
}

#[test]
fn a_failure_after_a_charge_refunds_it() {
    let servers = servers();
    let sharded = limiter(&servers, false);
    let policy = "fixed-window 10/hour";
    // Two keys on two servers, found by checks.
    let home = |key: &str| {
        let before: Vec<i64> = servers.iter().map(keys).collect();
        sharded.check(policy, key, 1, None).expect("a decision");
        (0..3).find(|at| keys(&servers[*at]) > before[*at]).expect("it went somewhere")
    };
    let first = home("first");
    let (other, at) = (0..50)
        .map(|number| format!("key {number}"))
        .find_map(|key| Some((key.clone(), home(&key))).filter(|(_, at)| *at != first))
        .expect("some key lives elsewhere");
    servers[at].kill(0);
    let entries = [(policy.to_owned(), "first".to_owned(), 3), (policy.to_owned(), other, 3)];
    for _ in 0..5 {
        assert_eq!(sharded.check_all(&entries).expect_err("one is gone").kind(), ErrorKind::StoreUnavailable);
        assert_eq!(sharded.peek(policy, "first", 1).expect("a peek").remaining(), 9);
    }
}

#[test]
fn a_lost_server_concerns_its_own_keys_alone() {
    let servers = servers();
    let urls = servers.iter().map(Servers::url);
    let limiter = Limiter::builder().stores(urls).timeout(TIMEOUT).build().expect("a limiter");
    soon("all servers answer", || limiter.ping().is_ok());
    servers[1].kill(0);
    let source = |number: u64| limiter.check("100/hour", &format!("key {number}")).expect("a decision").source();
    let sources: Vec<Source> = (0..60).map(source).collect();
    let local = sources.iter().filter(|source| **source == Source::Fallback).count();
    assert!((5..40).contains(&local), "{local} of 60");
    assert_eq!((0..60).map(source).collect::<Vec<_>>(), sources);
    assert_eq!(limiter.counters().lost, 1, "each server has a breaker of its own");
    let error = limiter.ping().expect_err("one is gone");
    assert!(error.message().contains(&servers[1].port(0).to_string()), "{error}");
}

#[test]
fn invalid_lists() {
    let refused = |urls: &[&str]| {
        let error = Limiter::builder().stores(urls.iter().copied()).build().expect_err("no list of stores");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
        assert!(!error.message().contains("hunter2"), "{error}");
        error.message().to_owned()
    };
    assert!(refused(&["redis://u:hunter2@h", "redis://H:6379/0"]).contains("twice"));
    assert!(refused(&["redis://h", "memory://"]).contains("memory"));
    assert!(refused(&["memory://", "memory://"]).contains("memory"));
    assert!(refused(&[]).contains("empty"));
    let path = std::env::temp_dir().join(format!("tidegate-shards-{}.json", std::process::id()));
    let [a, b, _] = servers();
    let text = format!(r#"{{"store": ["{}", "{}"], "policies": {{"p": "5/hour"}}}}"#, a.url(), b.url());
    std::fs::write(&path, text).expect("a file");
    let builder = tidegate::Builder::from_file(&path).expect("a list of stores").timeout(TIMEOUT);
    let limiter = builder.build().expect("a limiter");
    drop(std::fs::remove_file(&path));
    for number in 0..40 {
        limiter.check("p", &format!("key {number}")).expect("a decision");
    }
    assert!(keys(&a) > 5 && keys(&b) > 5 && keys(&a) + keys(&b) == 40);
}
