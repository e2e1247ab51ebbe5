//! Checks of many slots of a cluster travel together.

use std::time::Duration;

use serde_json::Value;
use tidegate::{AsyncLimiter, Limiter, OnStoreError};
use tidegate_tests::servers::{Kind, Servers, is_redis_6};

use super::used;

const KEYS: usize = 300;
const NODES: std::ops::Range<usize> = 0..3;

fn tasks(cluster: &Servers) -> AsyncLimiter {
    let limiter = Limiter::builder().store(cluster.url()).timeout(Duration::from_secs(10));
    limiter.on_store_error(OnStoreError::Raise).deny_cache(Duration::ZERO).build_async().expect("a limiter")
}

/// Checks every key once at the same time, and returns how often the nodes were asked.
async fn check_all_keys(cluster: &Servers, limiter: &AsyncLimiter, policy: &'static str, expected: u64) -> u64 {
    let calls = || NODES.map(|node| cluster.calls(node, "evalsha") + cluster.calls(node, "eval")).sum::<u64>();
    let before = calls();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..KEYS {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.check(policy, &format!("key {number}")).await });
    }
    while let Some(done) = waiting.join_next().await {
        let decision = done.expect("a task ends").expect("a decision");
        assert_eq!(used(&decision), expected, "{policy}: {}", decision.key());
    }
    calls() - before
}

#[tokio::test]
async fn checks_of_many_slots_are_few_calls() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = tasks(&cluster);
    for policy in ["1000/hour", "gcra 1000/hour; sliding-counter 1000/day", "fixed-window 1000/hour; 1000/day"] {
        for round in 1..=3 {
            let calls = check_all_keys(&cluster, &limiter, policy, round).await;
            // Redis 6 has no scripts over several slots: there each check is a call.
            assert!(is_redis_6() || calls <= 90, "{policy}: {KEYS} checks in {calls} calls");
        }
    }
}

/// A node that lost slots refuses their keys one by one, and the limiter checks these keys at their new node.
#[tokio::test]
async fn keys_that_have_moved_are_checked_once() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = tasks(&cluster);
    check_all_keys(&cluster, &limiter, "1000/hour", 1).await;
    for from in NODES {
        for _ in 0..10 {
            let mut connection = cluster.connection(from);
            let key: Vec<u8> = redis::cmd("RANDOMKEY").query(&mut connection).expect("a key");
            let slot = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut connection).expect("its slot");
            tidegate_tests::cluster::move_slot(&cluster, slot, from, (from + 1) % NODES.len());
        }
    }
    for round in 2..=4 {
        check_all_keys(&cluster, &limiter, "1000/hour", round).await;
    }
}

/// A server without free memory refuses a script that may write before the script runs. A denial writes nothing, so
/// each check gets its own answer.
#[tokio::test]
async fn a_full_server_still_answers_what_it_can() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = tasks(&cluster);
    check_all_keys(&cluster, &limiter, "fixed-window 1/hour", 1).await;
    for node in NODES {
        assert_eq!(cluster.command(node, &["CONFIG", "SET", "maxmemory", "1"]), Value::from("OK"));
    }
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..KEYS {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.check("fixed-window 1/hour", &format!("key {number}")).await });
    }
    while let Some(done) = waiting.join_next().await {
        assert!(!done.expect("a task ends").expect("a denial").allowed());
    }
}
