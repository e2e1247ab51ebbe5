//! One server behind a bad network.

use tidegate_tests::proxy::Proxy;
use tidegate_tests::servers::{Kind, Servers};

use super::{COMMON_FAULTS, Losses, inject_fault, sleep, soak};

#[test]
fn nothing_is_lost_and_nothing_counts_twice() {
    let servers = Servers::start(Kind::Single);
    let proxy = Proxy::to(servers.port(0));
    let losses = Losses::default();
    soak(&format!("redis://127.0.0.1:{}/0", proxy.port()), &losses, COMMON_FAULTS + 2, |kind, random| match kind {
        0 => {
            losses.during(|| {
                servers.kill(0);
                sleep(10 + random.below(450));
                servers.start_again(0);
            });
            "killed"
        }
        1 => {
            losses.during(|| drop(servers.command(0, &["FLUSHALL"])));
            "emptied"
        }
        _ => inject_fault(kind - 2, random, &servers, 0, &proxy),
    });
}
