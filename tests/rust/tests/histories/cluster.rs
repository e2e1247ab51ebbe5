//! A cluster with nodes that fail, fail over, and hand over slots.

use tidegate_tests::call_records::{Loss, Schedule};
use tidegate_tests::cluster::Cluster;
use tidegate_tests::proxy::Condition;
use tidegate_tests::servers::is_redis_6;

use super::run::{Soak, long_schedule, sleep};

#[test]
fn an_order_of_the_calls_explains_the_answers() {
    if is_redis_6() {
        return;
    }
    let cluster = Cluster::start();
    // The keys of two policies lie in different slots, which one call cannot ask at the same moment.
    let schedule = Schedule { across_policies: false, ..long_schedule("cluster") };
    let mut soak = Soak::new("cluster", &cluster.url(), schedule, 7);
    soak.run(6, |kind, log, random| {
        let primaries = cluster.primaries();
        let number = random.below(3) as usize;
        let (one, other) = (primaries[number], primaries[(number + 1 + random.below(2) as usize) % 3]);
        let mut network = |name, condition| {
            log.cause(name, Loss::Nothing, || {
                cluster.proxies[one].set(condition);
                sleep(20 + random.below(400));
                cluster.proxies[one].set(Condition::Healthy);
            });
        };
        match kind {
            0 => log.cause("primary killed", Loss::Newest, || cluster.kill(one)),
            1 => log.cause("failover ordered", Loss::Nothing, || cluster.fail_over(one)),
            2 => log.cause("slots moved", Loss::Nothing, || cluster.reshard(random, one, other)),
            3 => log.cause("node emptied", Loss::EverythingOfSome, || {
                drop(cluster.servers.command(one, &["FLUSHALL"]));
            }),
            4 => network("silent", Condition::Silent),
            5 => network("cut", Condition::CutReplies),
            _ => log.cause("scripts flushed", Loss::Nothing, || {
                drop(cluster.servers.command(one, &["SCRIPT", "FLUSH"]));
            }),
        }
    });
}
