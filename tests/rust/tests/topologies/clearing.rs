//! `clear_all` forgets all keys under the limiter's own prefix, on every primary, and nothing else.

use std::time::Duration;

use serde_json::Value;
use tidegate::{Builder, Limiter, Options, Policy, Source};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::{Kind, Servers};

const KEYS: u64 = 200;

fn builder(urls: &[&str], prefix: &str) -> Builder {
    let limits = |text: &str| text.parse::<Policy>().expect("a policy").limits().to_vec();
    let journal = Policy::new(limits("9/hour"), Options { journal: 3, ..Options::default() }).expect("a policy");
    let builder = Limiter::builder().timeout(Duration::from_secs(5)).prefix(prefix);
    let builder = if let [url] = urls { builder.store(*url) } else { builder.stores(urls.iter().copied()) };
    let builder = builder.policy("log", "sliding-log 100/hour").expect("a policy");
    let builder = builder.policy("window", "fixed-window 2/hour").expect("a policy");
    builder.named(journal.named("journal").expect("a name")).expect("a policy")
}

/// Uses many keys, with companions and blocks.
fn fill(limiter: &AnyLimiter) {
    for number in 0..KEYS {
        for policy in ["window", "journal"] {
            assert!(limiter.check(policy, &format!("key {number}"), 1, None).expect("a decision").allowed());
        }
    }
    // More than the value of a log holds.
    for _ in 0..60 {
        assert!(limiter.check("log", "key", 1, None).expect("a decision").allowed());
    }
    limiter.block("window", "key 0", Duration::from_secs(600)).expect("it is blocked");
    let denied = limiter.check("window", "key 0", 1, None).expect("a decision");
    assert!(!denied.allowed());
}

fn size(servers: &Servers, primaries: usize) -> i64 {
    (0..primaries).map(|server| servers.command(server, &["DBSIZE"]).as_i64().expect("a number")).sum()
}

fn check(urls: &[&str], stored: impl Fn() -> i64, foreign: i64) {
    for tasks in [false, true] {
        // One begins with the limiter's prefix, and one has the signs of a pattern.
        let neighbours =
            ["tgx", "t*", "t"].map(|prefix| AnyLimiter::new(builder(urls, prefix), tasks).expect("a limiter"));
        for neighbour in &neighbours {
            assert!(neighbour.check("window", "key", 1, None).expect("a decision").allowed());
        }
        let before = stored();
        assert_eq!(before, foreign + 3);
        let limiter = AnyLimiter::new(builder(urls, "tg"), tasks).expect("a limiter");
        fill(&limiter);
        assert!(stored() > before + 2 * KEYS as i64);
        limiter.clear_all().expect("it is cleared");
        assert_eq!(stored(), before, "nothing of this prefix is left, and nothing else is gone");
        let answer = limiter.check("window", "key 0", 1, None).expect("a decision");
        assert_eq!(
            (answer.allowed(), answer.remaining(), answer.source()),
            (true, 1, Source::Store),
            "no denial is repeated"
        );
        assert!(limiter.journal("journal", "key 1").expect("a journal").is_empty());
        limiter.clear_all().expect("it is cleared");
        for neighbour in &neighbours {
            assert_eq!(neighbour.peek("window", "key", 1).expect("a peek").remaining(), 1);
            neighbour.clear_all().expect("it is cleared");
        }
        assert_eq!(stored(), foreign);
    }
}

#[test]
fn one_server() {
    let servers = Servers::start(Kind::Single);
    servers.command(0, &["SET", "tg:of another application", "1"]);
    check(&[servers.url()], || size(&servers, 1), 1);
    assert_eq!(servers.command(0, &["GET", "tg:of another application"]), Value::from("1"));
}

#[test]
fn a_cluster() {
    let servers = Servers::start(Kind::Cluster);
    check(&[servers.url()], || size(&servers, 3), 0);
}

#[test]
fn shards() {
    let servers = [(); 2].map(|()| Servers::start(Kind::Single));
    let urls = servers.each_ref().map(|servers| servers.url());
    check(&urls, || servers.iter().map(|servers| size(servers, 1)).sum(), 0);
}

#[test]
fn memory() {
    for tasks in [false, true] {
        let limiter = AnyLimiter::new(builder(&["memory://"], "tg"), tasks).expect("a limiter");
        fill(&limiter);
        limiter.clear_all().expect("it is cleared");
        assert_eq!(limiter.peek("window", "key 0", 1).expect("a peek").remaining(), 2);
    }
}

/// A user without UNLINK uses DEL. A user without SCAN gets an error.
#[test]
fn permissions() {
    let servers = Servers::start(Kind::Single);
    let user = |name: &str, scan: &str| {
        let rules = [
            "on",
            ">secret",
            "resetkeys",
            "~tg*",
            "-@all",
            "+evalsha",
            "+eval",
            "+get",
            "+set",
            "+del",
            "+time",
            "+ping",
        ];
        let words: Vec<&str> = ["ACL", "SETUSER", name].into_iter().chain(rules).chain(Some(scan)).collect();
        servers.command(0, &words);
        let url = format!("redis://{name}:secret@127.0.0.1:{}/0", servers.port(0));
        Limiter::builder().store(url).timeout(Duration::from_secs(5)).build().expect("a limiter")
    };
    let may = user("may", "+scan");
    assert!(may.check("5/hour", "key").expect("a decision").allowed());
    may.clear_all().expect("DEL is enough");
    assert_eq!(size(&servers, 1), 0);
    let error = user("may-not", "+time").clear_all().expect_err("SCAN is forbidden");
    assert!(error.message().to_lowercase().contains("scan"), "{error}");
}
