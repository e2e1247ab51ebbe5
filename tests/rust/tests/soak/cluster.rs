//! A cluster with a bad network in front of every node.
//!
//! Replicas take over only when the test wants it. In all other faults the primary stays the primary, so that not one
//! unit may be lost.

use tidegate_tests::cluster::Cluster;
use tidegate_tests::servers::is_redis_6;

use super::{COMMON_FAULTS, Losses, inject_fault, soak};

#[test]
fn nothing_is_lost_and_nothing_counts_twice_in_a_cluster() {
    if is_redis_6() {
        return;
    }
    let cluster = Cluster::start();
    let losses = Losses::default();
    soak(&cluster.url(), &losses, COMMON_FAULTS + 6, |kind, random| {
        let primaries = cluster.primaries();
        let [one, other] = {
            let one = random.below(3);
            [one, (one + 1 + random.below(2)) % 3].map(|number| primaries[number as usize])
        };
        match kind {
            0 => {
                losses.during(|| cluster.kill(one));
                "a primary was killed"
            }
            1 => {
                losses.during(|| drop(cluster.servers.command(one, &["FLUSHALL"])));
                "a node was emptied"
            }
            2 | 3 => {
                cluster.fail_over(one);
                "a failover was ordered"
            }
            4 | 5 => {
                cluster.reshard(random, one, other);
                "slots moved"
            }
            _ => {
                let name = inject_fault(kind - 6, random, &cluster.servers, one, &cluster.proxies[one]);
                cluster.wait();
                name
            }
        }
    });
}
