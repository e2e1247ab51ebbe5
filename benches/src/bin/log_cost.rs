//! A long log: its bytes on the Redis server (MEMORY USAGE), and the server's CPU time for one more check.

use std::sync::Arc;
use std::time::Duration;

use redis::{Commands, Connection};
use tidegate::{Limiter, ManualClock};
use tidegate_benches::server_cpu;
use tidegate_tests::servers::{Kind, Servers};

const KEY: &str = "user:1234567";

/// The bytes of all keys, and the number of keys.
fn bytes(connection: &mut Connection) -> (u64, usize) {
    let keys: Vec<Vec<u8>> = connection.keys("*").expect("KEYS answers");
    let usage = |key: &Vec<u8>| -> u64 {
        redis::cmd("MEMORY")
            .arg("USAGE")
            .arg(key)
            .arg("SAMPLES")
            .arg(0)
            .query(connection)
            .expect("MEMORY USAGE answers")
    };
    (keys.iter().map(usage).sum(), keys.len())
}

fn main() {
    let servers = Servers::start(Kind::Single);
    let client = redis::Client::open(servers.url()).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_790_000_000)));
    let limiter = Limiter::builder().store(servers.url()).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
    let limiter = limiter.build().expect("a limiter");

    println!("sliding-log: bytes for each admitted check, and server CPU for one more check (µs)");
    println!("{:>9}{:>8}{:>8}{:>10}{:>10}", "entries", "bytes", "keys", "allowed", "denied");
    for entries in [10, 100, 1_000, 10_000, 100_000_u64] {
        let _: () = connection.flushall().expect("FLUSHALL");
        let policy = format!("sliding-log {entries}/day");
        let tick = Duration::from_secs(86_400) / u32::try_from(entries).expect("small") / 2;
        for _ in 0..entries {
            assert!(limiter.check(&policy, KEY).expect("a decision").allowed());
            clock.advance(tick);
        }
        let (bytes, keys) = bytes(&mut connection);
        let cost = |connection: &mut Connection, check: &dyn Fn()| {
            let before = server_cpu(connection);
            (0..2_000).for_each(|_| check());
            (server_cpu(connection) - before) * 1e6 / 2_000.0
        };
        let denied = cost(&mut connection, &|| assert!(!limiter.check(&policy, KEY).expect("a decision").allowed()));
        // The log stays full: one entry leaves for each that comes.
        clock.advance(Duration::from_secs(43_200));
        let allowed = cost(&mut connection, &|| {
            limiter.check(&policy, KEY).expect("a decision");
            clock.advance(tick);
        });
        println!("{entries:>9}{:>8.1}{keys:>8}{allowed:>10.1}{denied:>10.1}", bytes as f64 / entries as f64);
    }
}
