//! No call takes longer than it may, whatever the network and the server do, and none is counted twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{AsyncLimiter, Builder, ErrorKind, Limiter, OnStoreError};
use tidegate_tests::any_limiter::{AnyLimiter, runtime};
use tidegate_tests::lateness::{LatenessProbe, retry_if_stalled, stretched};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::sockets::open_to;

const TIMEOUT: Duration = Duration::from_millis(150);
/// What the promise allows beyond the timeout.
const GRACE: Duration = Duration::from_millis(20);
const POLICY: &str = "fixed-window 1000000/hour";

/// One test at a time: what others need of this machine would be time that a call took.
static ALONE: Mutex<()> = Mutex::new(());

fn timeout() -> Duration {
    stretched(TIMEOUT)
}

fn alone(trial: impl Fn()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    retry_if_stalled(trial);
}

/// In time, but for what the machine was late by: a late answer is woken twice, the thread that hands it out and the one
/// that waits for it, and either may be late.
#[track_caller]
fn in_time(took: Duration, timeout: Duration, machine: Duration, what: &str) {
    assert!(took < timeout + GRACE + 2 * machine, "{what}: a call took {took:?}, the machine was late by {machine:?}");
}

fn builder(port: u16) -> Builder {
    Limiter::builder().store(format!("redis://127.0.0.1:{port}/0")).timeout(timeout()).bare()
}

/// Calls from several threads and from many tasks for a while; none may be late.
fn hammer(blocking: &Limiter, tasks: &AsyncLimiter, span: Duration, what: &str) -> (u64, u64) {
    let probe = LatenessProbe::start();
    let start = Instant::now();
    let call = |limiter: &Limiter, number: usize| {
        let begun = Instant::now();
        let done = limiter.check(POLICY, &format!("k{}", number % 7)).is_ok();
        (begun.elapsed(), u64::from(done))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
                    while start.elapsed() < span {
                        let (took, fine) = call(blocking, thread + calls);
                        (worst, done, calls) = (worst.max(took), done + fine, calls + 1);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    (worst, done, calls as u64)
                })
            })
            .collect();
        let (worst_task, mut done, mut calls) = runtime().block_on(async {
            let workers = (0..50).map(|worker| {
                let limiter = tasks.clone();
                tokio::spawn(async move {
                    let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
                    while start.elapsed() < span {
                        let begun = Instant::now();
                        let fine = limiter.check(POLICY, &format!("k{}", (worker + calls) % 7)).await.is_ok();
                        worst = worst.max(begun.elapsed());
                        (done, calls) = (done + u64::from(fine), calls + 1);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    (worst, done, calls as u64)
                })
            });
            let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
            for worker in workers.collect::<Vec<_>>() {
                let (one_worst, one_done, one_calls) = worker.await.expect("a worker ends");
                (worst, done, calls) = (worst.max(one_worst), done + one_done, calls + one_calls);
            }
            (worst, done, calls)
        });
        let mut worst_thread = Duration::ZERO;
        for thread in threads {
            let (one_worst, one_done, one_calls) = thread.join().expect("a thread ends");
            (worst_thread, done, calls) = (worst_thread.max(one_worst), done + one_done, calls + one_calls);
        }
        println!("{what:<24} {calls:>6} calls, {done:>6} answered, the longest {worst_thread:?} and {worst_task:?}");
        let machine = probe.worst();
        in_time(worst_thread.max(worst_task), timeout(), machine, what);
        (calls, done)
    })
}

/// How long it takes until both ways are answered again.
fn recovers(blocking: &Limiter, tasks: &AsyncLimiter, what: &str) {
    let start = Instant::now();
    while blocking.check(POLICY, "back").is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "{what}: no recovery of the blocking way");
    }
    let first = start.elapsed();
    runtime().block_on(async {
        while let Err(error) = tasks.check(POLICY, "back").await {
            assert!(start.elapsed() < Duration::from_secs(5), "{what}: no recovery of the other way: {error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    println!("{what:<24} back after {first:?} and {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(1), "{what}: recovery took {:?}", start.elapsed());
}

#[test]
fn hold_in_every_weather() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let proxy = Proxy::to(redis.port(0));
        let blocking = builder(proxy.port()).build().expect("a limiter");
        let tasks = builder(proxy.port()).build_async().expect("a limiter");
        let conditions = [
            ("clear", Condition::Healthy),
            ("slow", Condition::Slow(stretched(Duration::from_millis(60)))),
            ("too slow", Condition::Slow(stretched(Duration::from_millis(200)))),
            ("silent", Condition::Silent),
            ("swallow", Condition::DropReplies),
            ("cut", Condition::CutReplies),
            ("stall", Condition::StallReplies),
            ("trickle", Condition::TrickleReplies(Duration::from_millis(10))),
            ("refuse", Condition::Refuse),
        ];
        for (what, condition) in conditions {
            proxy.set(condition);
            let (_, done) = hammer(&blocking, &tasks, Duration::from_millis(600), what);
            proxy.set(Condition::Healthy);
            recovers(&blocking, &tasks, what);
            assert!(done > 0 || !matches!(what, "clear" | "slow"), "{what}: somebody is answered");
        }
    });
}

#[test]
fn hold_while_the_server_stands_still_and_when_it_is_gone() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let blocking = builder(redis.port(0)).build().expect("a limiter");
        let tasks = builder(redis.port(0)).build_async().expect("a limiter");
        hammer(&blocking, &tasks, Duration::from_millis(200), "before");
        redis.stop(0);
        hammer(&blocking, &tasks, Duration::from_millis(800), "stopped");
        redis.cont(0);
        recovers(&blocking, &tasks, "stopped");
        redis.kill(0);
        hammer(&blocking, &tasks, Duration::from_millis(300), "killed");
        redis.start_again(0);
        recovers(&blocking, &tasks, "killed");
        for connection in [100, 101] {
            redis.command(0, &["CLIENT", "PAUSE", "400", "ALL"]);
            hammer(&blocking, &tasks, Duration::from_millis(300), &format!("paused {connection}"));
            std::thread::sleep(Duration::from_millis(150));
            recovers(&blocking, &tasks, "paused");
        }
    });
}

/// A server that stood still runs what reached it when it goes on. That is at most what was under way.
#[test]
fn a_server_that_stood_still_is_not_flooded_when_it_goes_on() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let blocking = builder(redis.port(0)).build().expect("a limiter");
        let tasks = builder(redis.port(0)).fold(1).build_async().expect("a limiter");
        blocking.check(POLICY, "one").expect("a decision");
        runtime().block_on(tasks.check(POLICY, "two")).expect("a decision");
        redis.stop(0);
        let mut asked = 0;
        for _ in 0..4 {
            assert_eq!(blocking.check(POLICY, "one").expect_err("it stands still").kind(), ErrorKind::StoreTimeout);
            asked += 1;
        }
        runtime().block_on(async {
            for _ in 0..4 {
                let error = tasks.check(POLICY, "two").await.expect_err("it stands still");
                assert_eq!(error.kind(), ErrorKind::StoreTimeout);
            }
        });
        redis.cont(0);
        recovers(&blocking, &tasks, "stood still");
        let used = |key: &str| 1_000_000 - blocking.peek(POLICY, key, 1).expect("a peek").remaining();
        assert_eq!(asked, 4);
        assert!(used("one") <= 2, "the first ran late, those after it were not sent: {}", used("one"));
        assert!(used("two") <= 2, "the first ran late, those after it were not sent: {}", used("two"));
    });
}

#[test]
fn replies_that_are_lost_are_not_asked_for_again() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let proxy = Proxy::to(redis.port(0));
        let direct = builder(redis.port(0)).build().expect("a limiter");
        for condition in [Condition::DropReplies, Condition::CutReplies, Condition::StallReplies] {
            let blocking = builder(proxy.port()).build().expect("a limiter");
            let tasks = builder(proxy.port()).build_async().expect("a limiter");
            blocking.check(POLICY, "warm").expect("a decision");
            runtime().block_on(tasks.check(POLICY, "warm")).expect("a decision");
            for turn in 0..4 {
                proxy.set(condition);
                let (one, two) = (format!("{condition:?} one {turn}"), format!("{condition:?} two {turn}"));
                let first = blocking.check(POLICY, &one);
                let second = runtime().block_on(tasks.check(POLICY, &two));
                assert!(first.is_err() && second.is_err(), "{condition:?}: the answer was lost");
                proxy.set(Condition::Healthy);
                recovers(&blocking, &tasks, "lost");
                for key in [one, two] {
                    let used = 1_000_000 - direct.peek(POLICY, &key, 1).expect("a peek").remaining();
                    assert!(used <= 1, "{condition:?}: counted {used} times");
                }
            }
        }
    });
}

/// Waits until this process can know that the server has ended all connections. A busy machine delivers that later than
/// the answer to the command that caused it; a check sent between the two is lost, and rightly reported as lost.
fn ends_are_known(port: u16) {
    until("the ends of the connections have arrived", || open_to(port).is_none_or(|open| open == 0));
}

#[test]
fn a_restart_costs_idle_connections_no_error() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let builder = || Limiter::builder().store(redis.url()).timeout(Duration::from_secs(5)).bare();
        let blocking = Arc::new(builder().build().expect("a limiter"));
        let tasks = builder().build_async().expect("a limiter");
        let runtime = runtime();
        for _ in 0..5 {
            std::thread::scope(|scope| {
                (0..8).for_each(|_| drop(scope.spawn(|| blocking.check(POLICY, "k").expect("a decision"))));
            });
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.restart(0);
            ends_are_known(redis.port(0));
            (0..8).for_each(|_| drop(blocking.check(POLICY, "k").expect("a decision")));
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.command(0, &["SCRIPT", "FLUSH"]);
            blocking.check(POLICY, "k").expect("a decision");
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.command(0, &["CLIENT", "KILL", "TYPE", "normal"]);
            ends_are_known(redis.port(0));
            blocking.check(POLICY, "k").expect("a decision");
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
        }
    });
}

#[test]
fn a_ping_finds_what_a_plain_ping_does_not() {
    alone(|| {
        let redis = Servers::start_with(
            Kind::Single,
            json!({"users": {"reader": "on nopass ~* +@read +@connection +evalsha +eval +time"}}),
        );
        let url = format!("redis://127.0.0.1:{}/0", redis.port(0));
        let both = |url: &str| {
            let builder = || Limiter::builder().store(url).timeout(Duration::from_secs(2)).bare();
            let blocking = builder().build().expect("a limiter").ping();
            let limiter = builder().build_async().expect("a limiter");
            let tasks = runtime().block_on(limiter.ping());
            assert_eq!(blocking.is_ok(), tasks.is_ok(), "{blocking:?} {tasks:?}");
            blocking
        };
        both(&url).expect("all is well");
        let life = redis.command(0, &["KEYS", "tg*"])[0].as_str().is_some();
        assert!(life, "it wrote a key");
        let error = both(&url.replace("127.", "reader:x@127.")).expect_err("it may not write");
        assert!(error.kind() == ErrorKind::StoreRejected && error.message().contains("the ACL user lacks"), "{error}");
        redis.command(0, &["CONFIG", "SET", "maxmemory", "1"]);
        let error = both(&url).expect_err("it is full");
        assert!(error.message().contains("OOM"), "{error}");
        redis.command(0, &["CONFIG", "SET", "maxmemory", "0"]);
        redis.command(0, &["CLIENT", "PAUSE", "5000", "WRITE"]);
        assert_eq!(both(&url).expect_err("it is paused").kind(), ErrorKind::StoreTimeout);
        redis.command(0, &["CLIENT", "UNPAUSE"]);
        redis.command(0, &["REPLICAOF", "127.0.0.1", "1"]);
        let error = both(&url).expect_err("it only reads");
        assert!(error.message().contains("READONLY"), "{error}");
        redis.command(0, &["REPLICAOF", "NO", "ONE"]);
        both(&url).expect("all is well again");
    });
}

/// Until it is so, or for long enough.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn entries(keys: &[String], costs: [u64; 3]) -> Vec<(String, String, u64)> {
    keys.iter().zip(costs).map(|(key, cost)| ("fixed-window 10/hour".to_owned(), key.clone(), cost)).collect()
}

/// Several stores are asked one after the other, in the time of one call; what was charged is given back afterwards.
#[test]
fn a_whole_over_several_stores_has_the_time_of_one_call() {
    alone(|| {
        let servers = [(); 3].map(|()| Servers::start(Kind::Single));
        let proxies = servers.each_ref().map(|server| Proxy::to(server.port(0)));
        let urls = proxies.each_ref().map(|proxy| format!("redis://127.0.0.1:{}/0", proxy.port()));
        let left = |store: usize, key: &str| {
            let limiter = builder(servers[store].port(0)).timeout(Duration::from_secs(5)).build().expect("a limiter");
            limiter.peek("fixed-window 10/hour", key, 1).expect("a peek").remaining()
        };
        for tasks in [false, true] {
            let limiter = Limiter::builder().stores(urls.iter().map(String::as_str)).timeout(timeout());
            let limiter = AnyLimiter::new(limiter.on_store_error(OnStoreError::Raise), tasks).expect("a limiter");
            until("all answer", || limiter.ping().is_ok());
            // One key of each server.
            let keys: Vec<String> = (0..3)
                .map(|store| {
                    let mut names = (0..).map(|number| format!("{tasks} {number}"));
                    let lives_there = |key: &String| {
                        limiter.check("fixed-window 10/hour", key, 1, None).expect("a decision");
                        let there = left(store, key) == 9;
                        limiter.clear("fixed-window 10/hour", key).expect("it is cleared");
                        there
                    };
                    names.find(lives_there).expect("some key lives there")
                })
                .collect();
            let call = |what: &str, slow: u64, costs: [u64; 3]| {
                proxies.iter().for_each(|proxy| proxy.set(Condition::Slow(stretched(Duration::from_millis(slow)))));
                let (probe, begun) = (LatenessProbe::start(), Instant::now());
                let answer = limiter.check_all(&entries(&keys, costs));
                let took = begun.elapsed();
                proxies.iter().for_each(|proxy| proxy.set(Condition::Healthy));
                println!("{what:<24} took {took:?}");
                in_time(took, timeout(), probe.worst(), what);
                until("what the first was charged is given back", || left(0, &keys[0]) == 10);
                answer
            };
            let error = call("no time for all", 100, [1, 1, 1]).expect_err("three times that is too long");
            assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
            until("all answer", || limiter.ping().is_ok());
            let refused = call("no time to give back", 60, [1, 11, 1]).expect("it is known by then");
            assert!(!refused.allowed() && refused.key() == keys[1]);
            assert_eq!(left(2, &keys[2]), 10, "the last was not asked to pay");
        }
    });
}

/// The same within a cluster, where all nodes are asked before they charge.
#[test]
fn what_one_node_was_charged_is_given_back_when_another_is_too_late() {
    alone(|| {
        let cluster = Servers::start(Kind::Cluster);
        let proxy = Proxy::to(cluster.port(0));
        let bus = cluster.port(0) + 10_000;
        cluster.command(0, &["CONFIG", "SET", "cluster-announce-bus-port", &bus.to_string()]);
        cluster.command(0, &["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
        let named = |node| cluster.command(node, &["CLUSTER", "SLOTS"]).to_string().contains(&proxy.port().to_string());
        until("all nodes name the proxy", || (0..3).all(named));
        let timeout = stretched(Duration::from_millis(300));
        for tasks in [false, true] {
            let limiter = Limiter::builder().store(cluster.url()).timeout(timeout).bare();
            let limiter = AnyLimiter::new(limiter, tasks).expect("a limiter");
            let policy = "fixed-window 10/hour";
            until("it is connected", || limiter.check(policy, "warm", 1, None).is_ok());
            let size = || cluster.command(0, &["DBSIZE"]);
            let (slow, others): (Vec<String>, Vec<String>) =
                (0..12).map(|number| format!("{tasks} {number}")).partition(|key| {
                    let before = size();
                    limiter.check(policy, key, 1, None).expect("a decision");
                    before != size()
                });
            assert!(!slow.is_empty() && !others.is_empty(), "keys of the slow node and others");
            let all: Vec<_> = others.iter().chain(&slow).map(|key| (policy.to_owned(), key.clone(), 1)).collect();
            // Time enough to say that it would admit, and not to charge.
            proxy.set(Condition::Slow(timeout * 2 / 3));
            let (probe, begun) = (LatenessProbe::start(), Instant::now());
            let error = limiter.check_all(&all).expect_err("one is too late");
            let took = begun.elapsed();
            proxy.set(Condition::Healthy);
            assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
            assert!(took >= timeout, "it took {took:?}");
            in_time(took, timeout, probe.worst(), "one too late");
            until("the others are given back", || {
                others.iter().all(|key| limiter.peek(policy, key, 1).is_ok_and(|peek| peek.remaining() == 9))
            });
        }
    });
}
