//! One server behind a bad network.

use std::time::Duration;

use serde_json::json;
use tidegate_tests::call_records::Loss;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

use super::run::{FaultLog, Soak, schedule, sleep};

/// The number of kinds of faults.
const KINDS: u64 = 10;

/// A fault of one server. `durable` is true if the server keeps an append-only file.
fn inject(kind: u64, log: &FaultLog, random: &mut Random, servers: &Servers, proxy: &Proxy, durable: bool) {
    let length = 20 + random.below(500);
    let condition = |name: &'static str, condition: Condition| log.condition(name, proxy, condition, length);
    match kind {
        0 => log.killed(servers, if durable { Loss::Nothing } else { Loss::Everything }, length / 4),
        1 => log.stopped(servers, length),
        2 => condition("silent", Condition::Silent),
        3 => condition("cut", Condition::CutReplies),
        4 => condition("trickled", Condition::TrickleReplies(Duration::from_millis(3))),
        5 => condition("swallowed", Condition::DropReplies),
        6 => condition("refused", Condition::Refuse),
        7 => log.cause("emptied", Loss::Everything, || drop(servers.command(0, &["FLUSHALL"]))),
        8 => log.cause("scripts flushed", Loss::Nothing, || drop(servers.command(0, &["SCRIPT", "FLUSH"]))),
        _ => log.cause("filled", Loss::Nothing, || {
            drop(servers.command(0, &["CONFIG", "SET", "maxmemory", "1"]));
            sleep(length);
            drop(servers.command(0, &["CONFIG", "SET", "maxmemory", "0"]));
        }),
    }
}

fn soak(name: &str, durable: bool) {
    let config = if durable { json!({"appendonly": "yes", "appendfsync": "always"}) } else { json!({}) };
    let servers = Servers::start_with(Kind::Single, json!({"config": config}));
    let proxy = Proxy::to(servers.port(0));
    let url = format!("redis://127.0.0.1:{}/0", proxy.port());
    Soak::new(name, &url, schedule(name), KINDS).run(4, |kind, log, random| {
        inject(kind, log, random, &servers, &proxy, durable);
    });
}

#[test]
fn an_order_of_the_calls_explains_the_answers() {
    soak("single", false);
}

#[test]
fn an_append_only_file_loses_nothing() {
    soak("durable", true);
}
