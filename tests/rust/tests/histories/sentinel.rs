//! A primary with replicas and sentinels: when the primary is killed, the newest charges may be lost, and nothing else.

use serde_json::json;
use tidegate_tests::call_records::Loss;
use tidegate_tests::servers::{Kind, Servers};

use super::run::{Soak, long_schedule, sleep, until};

const SENTINELS: std::ops::Range<usize> = 3..6;

/// The server that a sentinel names.
fn named_by(servers: &Servers, sentinel: usize) -> usize {
    let address = servers.command(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tidegate"]);
    let port = address[1].as_str().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    (0..SENTINELS.start).find(|server| servers.port(*server) == port).expect("a server")
}

/// The server that all sentinels name.
fn primary(servers: &Servers) -> usize {
    let mut primary = 0;
    until("the sentinels agree", || {
        primary = named_by(servers, SENTINELS.start);
        SENTINELS.clone().all(|sentinel| named_by(servers, sentinel) == primary)
    });
    primary
}

/// True if a server reports this about its replication. A server that changes its role reports nothing.
fn says(servers: &Servers, server: usize, what: &str) -> bool {
    let (user, password) = servers.control();
    let url = format!("redis://{user}:{password}@127.0.0.1:{}", servers.port(server));
    let mut info = redis::cmd("INFO");
    let answer = redis::Client::open(url).and_then(|client| client.get_connection());
    let answer = answer.and_then(|mut connection| info.arg("replication").query::<String>(&mut connection));
    answer.is_ok_and(|text| text.contains(what))
}

#[test]
fn an_order_of_the_calls_explains_the_answers() {
    let servers = Servers::start_with(Kind::Sentinel, json!({"down_after_ms": 2_000}));
    let mut soak = Soak::new("sentinel", servers.url(), long_schedule("sentinel"), 4);
    soak.run(6, |kind, log, random| match kind {
        0 => {
            let old = primary(&servers);
            log.cause("primary killed", Loss::Newest, || {
                servers.kill(old);
                until("a replica takes over", || {
                    let new = primary(&servers);
                    new != old && says(&servers, new, "role:master")
                });
            });
            let new = primary(&servers);
            // A server that comes back is a primary without data until the sentinels make it a replica. No client may use
            // it, because the sentinels named the new one before. An answer of theirs counts for 100 ms at a client.
            sleep(150 + random.below(250));
            log.cause("old primary back", Loss::Nothing, || {
                servers.start_again(old);
                until("it follows", || says(&servers, old, "master_link_status:up"));
                until("all follow", || says(&servers, new, "connected_slaves:2"));
            });
        }
        1 => log.cause("primary stopped", Loss::Nothing, || {
            let primary = primary(&servers);
            servers.stop(primary);
            sleep(20 + random.below(400));
            servers.cont(primary);
        }),
        2 => log.cause("scripts flushed", Loss::Nothing, || {
            drop(servers.command(primary(&servers), &["SCRIPT", "FLUSH"]));
        }),
        _ => log.cause("connections killed", Loss::Nothing, || {
            let words = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
            drop(servers.command(primary(&servers), &words));
        }),
    });
}
