//! A table in PostgreSQL behind a bad network.

use std::time::Duration;

use tidegate::host::set_up_postgres;
use tidegate_tests::call_records::Loss;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

use super::run::{FaultLog, Soak, schedule};

/// The number of kinds of faults.
const KINDS: u64 = 8;
/// A swap may be done so many microseconds after the moment of its decision.
const SLACK: u64 = 20_000;

/// A fault of the server. `durable` is true if a commit waits for the disk.
fn inject(kind: u64, log: &FaultLog, random: &mut Random, servers: &Servers, proxy: &Proxy, durable: bool) {
    let length = 20 + random.below(500);
    let condition = |name: &'static str, condition: Condition| log.condition(name, proxy, condition, length);
    match kind {
        0 => log.killed(servers, if durable { Loss::Nothing } else { Loss::Newest }, length / 4),
        1 => log.stopped(servers, length),
        2 => condition("silent", Condition::Silent),
        3 => condition("cut", Condition::CutReplies),
        4 => condition("swallowed", Condition::DropReplies),
        5 => condition("refused", Condition::Refuse),
        6 => log.cause("emptied", Loss::Everything, || drop(servers.command(0, &["DELETE FROM tidegate"]))),
        _ => log.cause("locked", Loss::Nothing, || {
            let locks = format!("BEGIN; LOCK TABLE tidegate; SELECT pg_sleep({}); COMMIT", length as f64 / 2_000.0);
            drop(servers.command(0, &[&locks]));
        }),
    }
}

fn soak(name: &str, durable: bool) {
    let servers = Servers::start(Kind::Postgres);
    let proxy = Proxy::to(servers.port(0));
    let url = servers.url().replace(&servers.port(0).to_string(), &proxy.port().to_string());
    set_up_postgres(servers.url(), Duration::from_secs(30)).expect("a table");
    let url = if durable { format!("{url}?durability=sync") } else { url };
    Soak::new(name, &url, schedule(name), KINDS).with_slack(SLACK).run(4, |kind, log, random| {
        inject(kind, log, random, &servers, &proxy, durable);
    });
}

#[test]
fn an_order_of_the_calls_explains_the_answers_of_a_table() {
    soak("table", false);
}

#[test]
fn a_table_with_commits_that_wait_for_the_disk_loses_nothing() {
    soak("durable-table", true);
}
