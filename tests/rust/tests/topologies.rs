//! Sentinels and clusters: who serves is found, followed, and asked for the right things.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{Builder, Decision, ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::any_limiter::{AnyLimiter, runtime};
use tidegate_tests::cluster::move_slot;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wall_clock::wait_out_the_end_of_an_hour;

const POLICY: &str = "fixed-window 1000000/hour";
/// What an application's user needs, as the documentation says.
const LEAST: &str =
    "on >hunter2 resetkeys ~tg* -@all +evalsha +eval +get +set +del +time +ping +hget +hset +hdel +pexpire";
const LEAST_IN_A_CLUSTER: &str = "on >hunter2 resetkeys ~tg* -@all +evalsha +eval +get +set +del +time +ping +hget +hset +hdel +pexpire +cluster|slots +asking +readonly";

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(Duration::from_secs(3)).bare()
}

fn both(url: &str) -> [AnyLimiter; 2] {
    [false, true].map(|tasks| AnyLimiter::new(builder(url), tasks).expect("a limiter"))
}

fn used(decision: &Decision) -> u64 {
    decision.limit() - decision.remaining()
}

/// Until it is so, or for long enough.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_cluster_is_one_store() {
    let cluster = Servers::start(Kind::Cluster);
    for (way, limiter) in both(cluster.url()).into_iter().enumerate() {
        limiter.ping().expect("all nodes serve");
        for number in 0..300 {
            let key = format!("k{}", number % 100);
            let decision = limiter.check(POLICY, &key, 1, None).expect("a decision");
            assert_eq!(used(&decision), (way as u64 * 3) + number / 100 + 1);
        }
    }
    let sizes: Vec<i64> = (0..3).map(|node| cluster.command(node, &["DBSIZE"]).as_i64().expect("a number")).collect();
    assert!(sizes.iter().all(|size| *size > 10), "every node has its share: {sizes:?}");
}

#[test]
fn check_all_over_slots_stands_or_falls() {
    let cluster = Servers::start(Kind::Cluster);
    for (way, limiter) in both(cluster.url()).into_iter().enumerate() {
        let entry = |policy: &str, key: String, cost| (policy.to_owned(), key, cost);
        let many: Vec<_> = (0..20).map(|number| entry("5/hour", format!("{way} k{number}"), 1)).collect();
        for round in 1..=5 {
            let decision = limiter.check_all(&many).expect("a decision");
            assert!(decision.allowed());
            assert!(decision.decisions().iter().all(|one| one.remaining() == 5 - round));
        }
        let decision = limiter.check_all(&many).expect("a decision");
        assert!(!decision.allowed() && decision.decisions().len() == 20);
        let mixed =
            [entry("9/hour", format!("{way} fresh"), 2), many[0].clone(), entry("9/hour", format!("{way} other"), 3)];
        for _ in 0..3 {
            let decision = limiter.check_all(&mixed).expect("a decision");
            assert!(!decision.allowed());
            assert_eq!(decision.decisions()[0].remaining(), 9, "nothing was charged");
        }
        assert_eq!(limiter.peek("9/hour", &format!("{way} other"), 1).expect("a peek").remaining(), 9);
    }
}

/// Threads that race for the last units of several keys at once: what was charged and given back adds up exactly.
#[test]
fn check_all_over_slots_gives_back_what_a_race_cost() {
    let cluster = Servers::start(Kind::Cluster);
    let policies = [
        "fixed-window 40/hour",
        "sliding-window 40/hour",
        "sliding-log 40/hour",
        "sliding-counter 40/hour",
        "gcra 40/year",
        "token-bucket 40/year",
        "leaky-bucket 40/year",
        "calendar-window 40/year",
        "concurrency 40 ttl 1h",
    ];
    let limiter = builder(cluster.url()).build().expect("a limiter");
    wait_out_the_end_of_an_hour();
    for policy in policies {
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        // The fifth key is short: it refuses when the others have charged.
                        let entries = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("short", 4)];
                        let all = || limiter.check_all(entries.map(|(key, cost)| (policy, key, cost)));
                        (0..8).filter(|_| all().expect("a decision").allowed()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(passed, 10, "{policy}: forty units in steps of four");
        for key in ["a", "b", "c", "d"] {
            let used = used(&limiter.peek(policy, key, 1).expect("a peek"));
            assert_eq!(used, 10, "{policy}: {key}");
        }
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keys of each worker: half of them have a log, which is three keys to the server.
const KEYS: u64 = 20;
const THREADS: u64 = 6;
/// In flight at the same time, so that they fold.
const TASKS: u64 = 60;
/// Slots that are handed over, each with keys in it.
const MOVES: usize = 150;

/// The policy and key of a worker's turn, and how many units it has used then.
fn turn(worker: u64, turn: u64) -> (&'static str, String, u64) {
    let policy = if turn.is_multiple_of(2) { "sliding-log 1000000/hour" } else { POLICY };
    (policy, format!("{worker} k{}", turn % KEYS), turn / KEYS + 1)
}

#[test]
fn slots_that_move_cost_no_error() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = Limiter::builder().store(cluster.url()).timeout(Duration::from_secs(3));
    let limiter = limiter.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let (stop, checks) = (AtomicBool::new(false), AtomicU64::new(0));
    let heard = |answer: tidegate::Result<Decision>, units: u64| {
        let decision = answer.expect("no error while slots move");
        assert_eq!((decision.source(), used(&decision)), (Source::Store, units), "nothing is lost or counted twice");
        checks.fetch_add(1, Ordering::Relaxed);
    };
    let goes_on = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let (limiter, heard, goes_on, stop) = (&limiter, &heard, &goes_on, &stop);
        let mut workers = Vec::new();
        for worker in 0..THREADS {
            workers.push(scope.spawn(move || {
                let _ends = Ends(stop);
                for number in (0..).take_while(|_| goes_on()) {
                    let (policy, key, units) = turn(worker, number);
                    heard(limiter.check(policy, &key), units);
                }
            }));
        }
        workers.push(scope.spawn(move || {
            let _ends = Ends(stop);
            let tasks = limiter.to_async();
            let one = async |worker| {
                for number in (0..).take_while(|_| goes_on()) {
                    let (policy, key, units) = turn(worker, number);
                    heard(tasks.check(policy, &key).await, units);
                }
            };
            let mut all: Vec<_> = (0..TASKS).map(|task| Box::pin(one(THREADS + task))).collect();
            runtime().block_on(std::future::poll_fn(|cx| {
                all.retain_mut(|task| task.as_mut().poll(cx).is_pending());
                if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }));
        // Whatever happens here, the workers end.
        let _ends = Ends(stop);
        let keys = |node| {
            let count: u64 = redis::cmd("DBSIZE").query(&mut cluster.connection(node)).expect("a number");
            count
        };
        until("all keys are there", || (0..3).map(keys).sum::<u64>() >= (THREADS + TASKS) * KEYS);
        for from in (0..3).cycle().take(MOVES) {
            let mut connection = cluster.connection(from);
            let key: Vec<u8> = redis::cmd("RANDOMKEY").query(&mut connection).expect("a key");
            let slot = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut connection).expect("its slot");
            move_slot(&cluster, slot, from, (from + 1) % 3);
            if !goes_on() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault));
        }
    });
    println!("{MOVES} slots moved during {} checks, and no error", checks.into_inner());
}

#[test]
fn a_cluster_fails_over() {
    let cluster = Servers::start(Kind::Cluster);
    let limiters = both(cluster.url());
    for limiter in &limiters {
        (0..50).for_each(|key| drop(limiter.check(POLICY, &format!("k{key}"), 1, None).expect("a decision")));
    }
    cluster.kill(0);
    for limiter in &limiters {
        until("the replica serves", || (0..50).all(|key| limiter.check(POLICY, &format!("k{key}"), 1, None).is_ok()));
        limiter.ping().expect("all is well again");
    }
}

#[test]
fn sentinels_name_the_primary_and_its_successor() {
    let servers = Servers::start(Kind::Sentinel);
    let limiters = both(servers.url());
    for (way, limiter) in limiters.iter().enumerate() {
        limiter.ping().expect("the primary serves");
        assert_eq!(used(&limiter.check(POLICY, "k", 1, None).expect("a decision")), way as u64 + 1);
    }
    servers.kill(0);
    for limiter in &limiters {
        until("the new primary serves", || limiter.check(POLICY, "new", 1, None).is_ok());
    }
    // Told to: the old primary lives on as a replica.
    let sentinel = redis::Client::open(format!("redis://127.0.0.1:{}/", servers.port(3))).expect("a URL");
    // Refused while the sentinels still finish the first.
    until("a failover begins", || {
        let order = |mut to| redis::cmd("SENTINEL").arg("FAILOVER").arg("tidegate").query::<()>(&mut to);
        sentinel.get_connection().and_then(order).is_ok()
    });
    for limiter in &limiters {
        until("the next primary serves", || limiter.check(POLICY, "newer", 1, None).is_ok());
    }
    let url = servers.url().replace("/tidegate/", "/nobody/");
    for limiter in both(&url) {
        let error = limiter.check(POLICY, "k", 1, None).expect_err("no such name");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        assert!(error.message().contains("nobody") && error.message().contains("knows tidegate"), "{error}");
    }
}

#[test]
fn peeks_are_answered_by_replicas() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        let servers = Servers::start(kind);
        let url = format!("{}?read_from=replica", servers.url());
        let replicas: &[usize] = if kind == Kind::Sentinel { &[1, 2] } else { &[3, 4, 5] };
        let calls = || -> u64 {
            let count = |node: &usize| {
                let stats = servers.command(*node, &["INFO", "commandstats"]);
                let line = stats.as_str().expect("text").lines().find(|line| line.starts_with("cmdstat_evalsha:"));
                let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok());
                calls.unwrap_or(0)
            };
            replicas.iter().map(count).sum()
        };
        for (way, limiter) in both(&url).into_iter().enumerate() {
            let key = format!("k{way}");
            limiter.check("5/hour", &key, 2, None).expect("a decision");
            let before = calls();
            // Who has just become a replica is not known to everybody at once.
            until("a replica that has heard answers", || {
                limiter.peek("5/hour", &key, 1).expect("a peek").remaining() == 3 && calls() > before
            });
            replicas.iter().for_each(|node| servers.kill(*node));
            assert_eq!(limiter.peek("5/hour", &key, 1).expect("the primary answers").remaining(), 3);
            replicas.iter().for_each(|node| servers.start_again(*node));
            if kind == Kind::Cluster {
                break;
            }
        }
    }
}

#[test]
fn urls_that_name_the_wrong_kind_say_what_was_found() {
    let (single, cluster, sentinel) =
        (Servers::start(Kind::Single), Servers::start(Kind::Cluster), Servers::start(Kind::Sentinel));
    let wrong = [
        (format!("redis://127.0.0.1:{}", cluster.port(1)), "a node of a Redis Cluster", "redis+cluster://"),
        (format!("redis://127.0.0.1:{}", sentinel.port(3)), "a sentinel", "redis+sentinel://"),
        (format!("redis+cluster://127.0.0.1:{}", single.port(0)), "a server that is a primary", "redis://"),
        (format!("redis+cluster://127.0.0.1:{}", sentinel.port(4)), "a sentinel", "redis+sentinel://"),
        (format!("redis+sentinel://127.0.0.1:{}/tidegate", single.port(0)), "a server that is a primary", "a sentinel"),
        (format!("redis+sentinel://127.0.0.1:{}/tidegate", cluster.port(0)), "a node of a Redis Cluster", "a sentinel"),
    ];
    for (url, found, advice) in wrong {
        for limiter in both(&url) {
            let error = limiter.check(POLICY, "k", 1, None).expect_err(&url);
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{url}: {error}");
            assert!(error.message().contains(found) && error.message().contains(advice), "{url}: {error}");
        }
    }
}

/// Who is named as a server of the store, and answers as something else.
#[test]
fn a_node_that_answers_as_another_is_told_what_was_expected() {
    let (single, cluster, sentinel) =
        (Servers::start(Kind::Single), Servers::start(Kind::Cluster), Servers::start(Kind::Sentinel));
    let watched = [
        ("replica", sentinel.port(1), "a server that is a replica", "the primary was expected"),
        ("node", cluster.port(0), "a node of a Redis Cluster", "a server that sentinels watch was expected"),
        ("watcher", sentinel.port(4), "a sentinel", "a server that sentinels watch was expected"),
    ];
    for (name, port, found, expected) in watched {
        sentinel.command(3, &["SENTINEL", "MONITOR", name, "127.0.0.1", &port.to_string(), "2"]);
        for limiter in both(&format!("redis+sentinel://127.0.0.1:{}/{name}", sentinel.port(3))) {
            let error = limiter.check(POLICY, "k", 1, None).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{name}: {error}");
            let said = error.message();
            assert!(said.contains(&format!("answers as {found}")) && said.contains(expected), "{name}: {error}");
            assert!(said.contains(&port.to_string()), "{name}: who it was is said: {error}");
        }
    }
    // The first node tells everybody that it is to be found where another server is.
    let (bus, wrong) = (cluster.port(0) + 10_000, single.port(0));
    cluster.command(0, &["CONFIG", "SET", "cluster-announce-bus-port", &bus.to_string()]);
    cluster.command(0, &["CONFIG", "SET", "cluster-announce-port", &wrong.to_string()]);
    until("all nodes believe it", || {
        (0..3).all(|node| cluster.command(node, &["CLUSTER", "SLOTS"]).to_string().contains(&wrong.to_string()))
    });
    for limiter in both(cluster.url()) {
        let answers: Vec<_> = (0..50).map(|key| limiter.check(POLICY, &format!("k{key}"), 1, None)).collect();
        let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!((5..45).contains(&errors.len()), "only its own keys are missed: {} of 50", errors.len());
        for error in errors {
            let said = error.message();
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
            assert!(said.contains("answers as a server that is a primary"), "{error}");
            assert!(said.contains("a node of a cluster was expected") && said.contains(&wrong.to_string()), "{error}");
        }
    }
}

#[test]
fn the_least_of_commands_is_enough() {
    let options = json!({"users": {"app": LEAST_IN_A_CLUSTER}});
    for (kind, options) in [(Kind::Cluster, options), (Kind::Sentinel, json!({"users": {"app": LEAST}}))] {
        let servers = Servers::start_with(kind, options);
        let url = servers.url().replace("://", "://app:hunter2@") + "?read_from=replica";
        for limiter in both(&url) {
            limiter.ping().expect("it may");
            for number in 0..90 {
                limiter.check(POLICY, &format!("k{number}"), 1, None).expect("it may");
                limiter.peek(POLICY, &format!("k{number}"), 1).expect("it may");
                limiter.check("sliding-log 1000/hour", "long", 1, None).expect("it may");
            }
            let entries: Vec<_> = (0..9).map(|number| (POLICY.to_owned(), format!("k{number}"), 1)).collect();
            assert!(limiter.check_all(&entries).expect("it may").allowed());
        }
    }
}

#[test]
fn a_cluster_with_tls_and_a_password() {
    let cluster = Servers::start_with(Kind::Cluster, json!({"tls": true, "client_certs": true, "password": "hunter2"}));
    let file = |name: &str| cluster.json()["tls"][name].as_str().expect("a file").to_owned();
    let url = format!(
        "{}?ssl_ca_certs={}&ssl_certfile={}&ssl_keyfile={}&protocol=3",
        cluster.url(),
        file("ca"),
        file("client_cert"),
        file("client_key")
    );
    for limiter in both(&url) {
        (0..50).for_each(|key| drop(limiter.check(POLICY, &format!("k{key}"), 1, None).expect("a decision")));
        limiter.ping().expect("all nodes serve");
    }
}
