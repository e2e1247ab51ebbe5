//! Sentinels name the primary and its replicas.

use tidegate::ErrorKind;
use tidegate_tests::servers::{Kind, Servers};

use super::{POLICY, both, until, used};

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
    // An ordered failover: the old primary becomes a replica.
    let sentinel = redis::Client::open(format!("redis://127.0.0.1:{}/", servers.port(3))).expect("a URL");
    // The sentinels refuse it until they have finished the first.
    until("a failover begins", || {
        let order = |mut to| redis::cmd("SENTINEL").arg("FAILOVER").arg("tidegate").query::<()>(&mut to);
        sentinel.get_connection().and_then(order).is_ok()
    });
    for limiter in &limiters {
        until("the next primary serves", || limiter.check(POLICY, "newer", 1, None).is_ok());
    }
    let url = servers.url().replace("/tidegate/", "/other/");
    for limiter in both(&url) {
        let error = limiter.check(POLICY, "k", 1, None).expect_err("no such name");
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        assert!(error.message().contains("other") && error.message().contains("knows tidegate"), "{error}");
    }
}

#[test]
fn peeks_are_answered_by_replicas() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        let servers = Servers::start(kind);
        let url = format!("{}?read_from=replica", servers.url());
        let replicas: &[usize] = if kind == Kind::Sentinel { &[1, 2] } else { &[3, 4, 5] };
        let calls = || replicas.iter().map(|node| servers.calls(*node, "evalsha")).sum::<u64>();
        for (way, limiter) in both(&url).into_iter().enumerate() {
            let key = format!("k{way}");
            limiter.check("5/hour", &key, 2, None).expect("a decision");
            let before = calls();
            // It takes a moment until a new replica is known.
            until("a replica that has the data answers", || {
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
