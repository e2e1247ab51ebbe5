//! One PostgreSQL server behind a bad network.

use std::time::Duration;

use tidegate::host::set_up_postgres;
use tidegate_tests::call_records::Loss;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::run::{Soak, schedule, sleep};

/// The number of kinds of faults that lose nothing. The next one is the end of the server.
const KINDS: u64 = 6;

fn soak(name: &str, kinds: u64) {
    let servers = Servers::start(Kind::Postgres);
    set_up_postgres(servers.url(), Duration::from_secs(60)).expect("a table");
    let proxy = Proxy::to(servers.port(0));
    let url = servers.url().replace(&servers.port(0).to_string(), &proxy.port().to_string());
    let mut soak = Soak::new(name, &url, schedule(name), kinds);
    // A process knows the clock of the server from its last answer, and the server allows for so much.
    soak.earlier = 20_000;
    soak.run(4, |kind, log, random| {
        let length = 20 + random.below(500);
        let condition = |name: &'static str, condition: Condition| {
            log.cause(name, Loss::Nothing, || {
                proxy.set(condition);
                sleep(length);
                proxy.set(Condition::Healthy);
            });
        };
        match kind {
            0 => log.cause("stopped", Loss::Nothing, || {
                servers.stop(0);
                sleep(length);
                servers.cont(0);
            }),
            1 => condition("silent", Condition::Silent),
            2 => condition("cut", Condition::CutReplies),
            3 => condition("swallowed", Condition::DropReplies),
            4 => condition("refused", Condition::Refuse),
            5 => log.cause("connections ended", Loss::Nothing, || {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegate'";
                drop(servers.command(0, &[end]));
            }),
            // Commits that are not on the disk yet are lost.
            _ => log.cause("killed", Loss::Newest, || {
                servers.kill(0);
                servers.start_again(0);
            }),
        }
    });
}

#[test]
fn an_order_of_the_calls_explains_the_answers() {
    soak("postgres", KINDS + 1);
}

#[test]
fn a_server_that_goes_on_loses_nothing() {
    soak("postgres-goes-on", KINDS);
}
