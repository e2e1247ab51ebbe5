//! A cluster in which every node has a bad network of its own.
//!
//! Replicas take over only where the test wants it. In all other faults the primary stays the primary, so that not one unit
//! may be lost.

use serde_json::Value;
use tidegate_tests::cluster::{NODES, identity, move_slot};
use tidegate_tests::proxy::Proxy;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

use super::{COMMON_FAULTS, Losses, inject_fault, soak, until};

/// The most slots that move in one fault.
const MOVES: u64 = 20;

struct Cluster {
    servers: Servers,
    proxies: Vec<Proxy>,
}

impl Cluster {
    fn start() -> Self {
        let servers = Servers::start(Kind::Cluster);
        let proxies = (0..NODES).map(|node| Proxy::to(servers.port(node))).collect();
        let cluster = Self { servers, proxies };
        for (node, proxy) in cluster.proxies.iter().enumerate() {
            // Nodes still reach each other directly, and announce the proxies to clients.
            let bus = (cluster.servers.port(node) + 10_000).to_string();
            cluster.configure(node, "cluster-announce-bus-port", &bus);
            cluster.configure(node, "cluster-announce-port", &proxy.port().to_string());
            cluster.configure(node, "cluster-replica-no-failover", "yes");
            // A restarted node must remember it.
            cluster.servers.command(node, &["CONFIG", "REWRITE"]);
        }
        let announced = |port: &Value| cluster.proxies.iter().any(|proxy| *port == proxy.port());
        until("all nodes name the proxies", || {
            (0..NODES).all(|node| {
                let slots = cluster.servers.command(node, &["CLUSTER", "SLOTS"]);
                let ranges = slots.as_array().expect("ranges");
                ranges.iter().flat_map(|range| &range.as_array().expect("a range")[2..]).all(|node| announced(&node[1]))
            })
        });
        cluster.wait();
        cluster
    }

    fn configure(&self, node: usize, name: &str, value: &str) {
        self.servers.command(node, &["CONFIG", "SET", name, value]);
    }

    fn is_primary(&self, node: usize) -> bool {
        self.servers.command(node, &["ROLE"])[0] == "master"
    }

    fn primaries(&self) -> Vec<usize> {
        (0..NODES).filter(|node| self.is_primary(*node)).collect()
    }

    /// The replica of a primary, according to the primary, which knows it later than the replica does.
    fn follower(&self, primary: usize) -> Option<usize> {
        let nodes = self.servers.command(primary, &["CLUSTER", "NODES"]);
        let name = identity(&self.servers, primary);
        let follows = |line: &&str| line.contains("slave") && line.split(' ').nth(3) == Some(&name);
        let follower = nodes.as_str().expect("text").lines().find(follows)?.split(' ').next()?;
        (0..NODES).find(|node| identity(&self.servers, *node) == follower)
    }

    fn replica(&self, primary: usize) -> usize {
        self.follower(primary).expect("a replica")
    }

    /// Waits until every slot has a primary, every primary has a connected replica, and all nodes agree.
    fn wait(&self) {
        let reports = |node: usize, words: &[&str], what: &str| {
            let reply = self.servers.command(node, words);
            // That replicas do not take over is no failure.
            reply.as_str().expect("text").replace("nofailover", "").contains(what)
        };
        until("the cluster is whole", || {
            (0..NODES).all(|node| reports(node, &["CLUSTER", "INFO"], "cluster_state:ok"))
                && (0..NODES).all(|node| !reports(node, &["CLUSTER", "NODES"], "fail"))
                && self.primaries().len() == NODES / 2
                && self.primaries().iter().all(|primary| self.follower(*primary).is_some())
                && (0..NODES)
                    .filter(|node| !self.is_primary(*node))
                    .all(|node| reports(node, &["INFO", "replication"], "master_link_status:up"))
        });
    }

    /// A primary is killed, its replica takes over, and the old primary returns without data as a replica.
    fn kill(&self, primary: usize) {
        let replica = self.replica(primary);
        self.configure(replica, "cluster-replica-no-failover", "no");
        self.servers.kill(primary);
        until("a replica takes over", || self.is_primary(replica));
        self.servers.start_again(primary);
        until("it follows", || !self.is_primary(primary));
        self.configure(replica, "cluster-replica-no-failover", "yes");
        self.wait();
    }

    /// An ordered failover, in which nothing is lost.
    fn fail_over(&self, primary: usize) {
        let replica = self.replica(primary);
        self.servers.command(replica, &["CLUSTER", "FAILOVER"]);
        until("the replica takes over", || self.is_primary(replica));
        self.wait();
    }

    /// Moves slots from one node to another.
    fn reshard(&self, random: &mut Random, from: usize, to: usize) {
        for _ in 0..1 + random.below(MOVES) {
            let key: Option<Vec<u8>> =
                redis::cmd("RANDOMKEY").query(&mut self.servers.connection(from)).expect("it answers");
            let Some(key) = key else { return };
            let mut ask = redis::cmd("CLUSTER");
            let slot = ask.arg("KEYSLOT").arg(key).query(&mut self.servers.connection(from)).expect("its slot");
            move_slot(&self.servers, slot, from, to);
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_counts_twice_in_a_cluster() {
    let cluster = Cluster::start();
    let losses = Losses::default();
    let seeds: Vec<String> = cluster.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    soak(&format!("redis+cluster://{}", seeds.join(",")), &losses, COMMON_FAULTS + 6, |kind, random| {
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
