//! `check_all` over several servers has the time of one call.

use std::time::{Duration, Instant};

use tidegate::{ErrorKind, Limiter, OnStoreError};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers, is_redis_6};

use super::{alone, builder, in_time, until};

fn entries(keys: &[String], costs: [u64; 3]) -> Vec<(String, String, u64)> {
    keys.iter().zip(costs).map(|(key, cost)| ("fixed-window 10/hour".to_owned(), key.clone(), cost)).collect()
}

/// Long, so that a stall of the machine is short beside it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Several stores are checked one after the other, in the time of one call. The charges are refunded afterwards.
#[test]
fn check_all_over_several_stores_has_the_time_of_one_call() {
    alone(|| {
        let servers = [(); 3].map(|()| Servers::start(Kind::Single));
        let proxies = servers.each_ref().map(|server| Proxy::to(server.port(0)));
        let urls = proxies.each_ref().map(|proxy| format!("redis://127.0.0.1:{}/0", proxy.port()));
        let left = |store: usize, key: &str| {
            let limiter = builder(servers[store].port(0)).timeout(Duration::from_secs(5)).build().expect("a limiter");
            limiter.peek("fixed-window 10/hour", key, 1).expect("a peek").remaining()
        };
        for tasks in [false, true] {
            let limiter = Limiter::builder().stores(urls.iter().map(String::as_str)).timeout(TIMEOUT);
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
            let call = |what: &str, slow: f64, costs: [u64; 3]| {
                proxies.iter().for_each(|proxy| proxy.set(Condition::Slow(TIMEOUT.mul_f64(slow))));
                let (probe, begun) = (LatenessProbe::start(), Instant::now());
                let answer = limiter.check_all(&entries(&keys, costs));
                let took = begun.elapsed();
                proxies.iter().for_each(|proxy| proxy.set(Condition::Healthy));
                println!("{what:<24} took {took:?}");
                in_time(took, TIMEOUT, probe.worst(), what);
                until("what the first was charged is refunded", || left(0, &keys[0]) == 10);
                answer
            };
            let error = call("no time for all", 0.65, [1, 1, 1]).expect_err("three times that is too long");
            assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
            until("all answer", || limiter.ping().is_ok());
            let refused = call("no time to refund", 0.4, [1, 11, 1]).expect("it is known by then");
            assert!(!refused.allowed() && refused.key() == keys[1]);
            assert_eq!(left(2, &keys[2]), 10, "the last store was not charged");
        }
    });
}

/// The same within a cluster, where all nodes are checked before any is charged.
#[test]
fn what_one_node_charged_is_refunded_when_another_is_too_late() {
    if is_redis_6() {
        return;
    }
    alone(|| {
        let cluster = Servers::start(Kind::Cluster);
        let proxy = Proxy::to(cluster.port(0));
        let bus = cluster.port(0) + 10_000;
        cluster.command(0, &["CONFIG", "SET", "cluster-announce-bus-port", &bus.to_string()]);
        cluster.command(0, &["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
        let named = |node| cluster.command(node, &["CLUSTER", "SLOTS"]).to_string().contains(&proxy.port().to_string());
        until("all nodes name the proxy", || (0..3).all(named));
        let timeout = Duration::from_secs(2);
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
            // Time enough to check the node, but not to charge it.
            proxy.set(Condition::Slow(timeout * 2 / 3));
            let (probe, begun) = (LatenessProbe::start(), Instant::now());
            let error = limiter.check_all(&all).expect_err("one is too late");
            let took = begun.elapsed();
            proxy.set(Condition::Healthy);
            assert_eq!(error.kind(), ErrorKind::StoreTimeout, "{error}");
            assert!(took >= timeout, "it took {took:?}");
            in_time(took, timeout, probe.worst(), "one too late");
            until("the others are refunded", || {
                others.iter().all(|key| limiter.peek(policy, key, 1).is_ok_and(|peek| peek.remaining() == 9))
            });
        }
    });
}
