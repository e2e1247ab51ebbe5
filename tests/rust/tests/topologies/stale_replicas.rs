//! Replicas that are behind, and stores of several servers as shards. Peeks are right all the same.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tidegate::{Builder, Limiter, OnStoreError};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::servers::{Kind, Servers};

use super::{both, until};

const HOUR: u64 = 3600;

/// Each is full after five units, and as if unused two hours later.
const POLICIES: [&str; 8] = [
    "fixed-window 5/hour",
    "calendar-window 5/hour",
    "sliding-window 5/hour",
    "sliding-log 5/hour",
    "sliding-counter 5/hour",
    "token-bucket 5/hour",
    "gcra 5/hour",
    "leaky-bucket 5/hour",
];

/// The servers that hold data: primaries, and the replicas that follow them.
fn data_servers(kind: Kind) -> (&'static [usize], &'static [usize]) {
    if kind == Kind::Sentinel { (&[0], &[1, 2]) } else { (&[0, 1, 2], &[3, 4, 5]) }
}

/// Sets these clocks to ten minutes past an hour, so that no calendar window ends during the test.
fn set_to_mid_hour(servers: &Servers, nodes: &[usize]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let ahead = u32::try_from((HOUR + 600 - now % HOUR) % HOUR).expect("less than an hour");
    nodes.iter().for_each(|node| servers.clock(*node, f64::from(ahead)));
}

/// How many calls these servers have run.
fn calls(servers: &Servers, nodes: &[usize]) -> u64 {
    nodes.iter().map(|node| servers.calls(*node, "evalsha")).sum()
}

#[test]
fn a_stale_replica_never_says_that_a_window_is_running() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        // No failover, however far the clocks are set.
        let options = json!({"clock": true, "down_after_ms": 100_000_000, "config": {"repl-timeout": 1_000_000}});
        let servers = Servers::start_with(kind, options);
        let (primaries, replicas) = data_servers(kind);
        [primaries, replicas].iter().for_each(|nodes| set_to_mid_hour(&servers, nodes));
        let limiters = both(&format!("{}?read_from=replica", servers.url()));
        for limiter in &limiters {
            for policy in POLICIES {
                for _ in 0..5 {
                    limiter.check(policy, "k", 1, None).expect("a decision");
                }
            }
        }
        let persist = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('PERSIST', key) end";
        for primary in primaries {
            // A lost expiry: a replica would keep the value for ever.
            servers.command(*primary, &["EVAL", persist, "0"]);
        }
        for limiter in &limiters {
            for policy in POLICIES {
                until("a replica that has the data answers", || {
                    let before = calls(&servers, replicas);
                    let decision = limiter.peek(policy, "k", 1).expect("a decision");
                    !decision.allowed() && decision.remaining() == 0 && calls(&servers, replicas) > before
                });
            }
        }
        for replica in replicas {
            until("the replicas have lost the expiries", || {
                let keys = servers.command(*replica, &["INFO", "keyspace"]);
                keys.as_str().is_some_and(|keys| !keys.contains("db0:") || keys.contains("expires=0,"))
            });
        }
        // Replication ends here: only replicas can answer.
        primaries.iter().for_each(|primary| servers.stop(*primary));
        replicas.iter().for_each(|replica| servers.clock(*replica, 7201.0));
        for limiter in &limiters {
            for policy in POLICIES {
                let decision =
                    limiter.peek(policy, "k", 5).unwrap_or_else(|error| panic!("{kind:?} {policy}: {error}"));
                assert!(decision.allowed(), "{kind:?} {policy}: {decision:?}");
                assert_eq!(decision.remaining(), 5, "{kind:?} {policy}");
                assert!(decision.reset_after().is_zero(), "{kind:?} {policy}: {decision:?}");
            }
        }
    }
}

/// Shards of several servers each.
fn shards(servers: &[Servers], tasks: bool) -> AnyLimiter {
    let urls = servers.iter().map(|servers| format!("{}?read_from=replica", servers.url()));
    let builder: Builder = Limiter::builder().stores(urls).timeout(std::time::Duration::from_secs(3));
    AnyLimiter::new(builder.on_store_error(OnStoreError::Raise).deny_cache(std::time::Duration::ZERO), tasks)
        .expect("a limiter")
}

#[test]
fn lists_of_sentinels_and_of_clusters_are_shards() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        let servers = [Servers::start(kind), Servers::start(kind)];
        let (primaries, replicas) = data_servers(kind);
        for tasks in [false, true] {
            let limiter = shards(&servers, tasks);
            let key = |number: u64| format!("{tasks} {number}");
            for number in 0..60 {
                let decision = limiter.check("fixed-window 9/hour", &key(number), 2, None).expect("a decision");
                assert_eq!(decision.remaining(), 7);
            }
            // Each shard has some of the 60 keys, whatever the ports are.
            for shard in &servers {
                let held = primaries.iter().map(|node| shard.command(*node, &["DBSIZE"]).as_u64().expect("a number"));
                assert!(held.sum::<u64>() > 5, "{kind:?}");
            }
            let before = [calls(&servers[0], replicas), calls(&servers[1], replicas)];
            until("replicas of both shards answer the same", || {
                (0..60).all(|number| {
                    limiter.peek("fixed-window 9/hour", &key(number), 1).is_ok_and(|decision| decision.remaining() == 7)
                }) && calls(&servers[0], replicas) > before[0]
                    && calls(&servers[1], replicas) > before[1]
            });
            let entries: Vec<_> = (0..60).map(|number| ("fixed-window 9/hour".to_owned(), key(number), 1)).collect();
            assert!(limiter.check_all(&entries).expect("a decision").allowed());
            until("the replicas have it", || {
                (0..60).all(|number| {
                    limiter.peek("fixed-window 9/hour", &key(number), 1).is_ok_and(|decision| decision.remaining() == 6)
                })
            });
        }
        // A failover in one shard is followed, and the other serves meanwhile.
        servers[0].kill(0);
        for tasks in [false, true] {
            let limiter = shards(&servers, tasks);
            until("the successor serves", || {
                (0..60).all(|number| limiter.check("1000/hour", &format!("new {tasks} {number}"), 1, None).is_ok())
            });
        }
    }
}
