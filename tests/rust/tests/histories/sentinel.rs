//! A primary with replicas and sentinels: when the primary is killed, the newest charges may be lost, and nothing else.

use serde_json::json;
use tidegate_tests::call_records::Loss;
use tidegate_tests::servers::{Kind, Servers};

use super::run::{Soak, long_schedule, sleep, until};

const SENTINEL: usize = 3;

/// The server that the sentinels name.
fn primary(servers: &Servers) -> usize {
    let address = servers.command(SENTINEL, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tidegate"]);
    let port = address[1].as_str().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    (0..SENTINEL).find(|server| servers.port(*server) == port).expect("a server")
}

fn says(servers: &Servers, server: usize, words: &[&str], what: &str) -> bool {
    servers.command(server, words).as_str().is_some_and(|text| text.contains(what))
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
                    new != old && says(&servers, new, &["INFO", "replication"], "role:master")
                });
            });
            let new = primary(&servers);
            sleep(300);
            log.cause("old primary back", Loss::Nothing, || {
                servers.start_again(old);
                until("it follows", || says(&servers, old, &["INFO", "replication"], "master_link_status:up"));
                until("all follow", || says(&servers, new, &["INFO", "replication"], "connected_slaves:2"));
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
