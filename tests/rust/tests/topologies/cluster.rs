//! A cluster is one store: its nodes, its failovers, its permissions, its certificates.

use serde_json::json;
use tidegate_tests::servers::{Kind, Servers};

use super::{POLICY, both, until, used};
/// The commands that an application's user needs, as in docs/production/redis.md.
const LEAST: &str =
    "on >hunter2 resetkeys ~tg* -@all +evalsha +eval +get +set +del +time +ping +hget +hset +hdel +pexpire";
const LEAST_IN_A_CLUSTER: &str = "on >hunter2 resetkeys ~tg* -@all +evalsha +eval +get +set +del +time +ping +hget +hset +hdel +pexpire +cluster|slots +asking +readonly";

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
fn the_documented_commands_are_enough() {
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
