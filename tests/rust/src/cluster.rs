//! The actions of tests on a cluster: they read the identity of a node, move slots, and let replicas take over.

use std::time::Duration;

use serde_json::Value;

use crate::proxy::Proxy;
use crate::random::Random;
use crate::servers::{Kind, Servers};
use crate::wait::wait_until;

/// Primaries and replicas.
pub const NODES: usize = 6;

/// The identity of a node in its cluster.
///
/// # Panics
/// When it does not answer.
#[must_use]
#[track_caller]
pub fn identity(cluster: &Servers, node: usize) -> String {
    cluster.command(node, &["CLUSTER", "MYID"]).as_str().expect("a name").to_owned()
}

/// Moves a slot and its keys to another node, one key at a time, so that the slot is split for a while.
///
/// # Panics
/// When a node refuses a command.
#[track_caller]
pub fn move_slot(cluster: &Servers, slot: u16, from: usize, to: usize) {
    let (number, from_id, to_id) = (slot.to_string(), identity(cluster, from), identity(cluster, to));
    let (user, password) = cluster.control();
    cluster.command(to, &["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
    cluster.command(from, &["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);
    let mut source = cluster.connection(from);
    loop {
        let mut ask = redis::cmd("CLUSTER");
        let keys: Vec<Vec<u8>> = ask.arg("GETKEYSINSLOT").arg(slot).arg(1).query(&mut source).expect("its keys");
        let Some(key) = keys.first() else { break };
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(cluster.port(to)).arg("").arg(0).arg(5_000).arg("REPLACE");
        migrate.arg("AUTH2").arg(user).arg(password).arg("KEYS").arg(key);
        migrate.exec(&mut source).expect("the key moves");
    }
    for node in [to, from] {
        cluster.command(node, &["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
    }
}

/// The most slots that move in one fault.
const MOVES: u64 = 20;

/// Nothing takes this long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(120);

#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(PATIENCE, what, holds);
}

/// A cluster with a faulty network in front of every node. Replicas take over only when the test wants it.
pub struct Cluster {
    /// Its nodes.
    pub servers: Servers,
    /// The proxies through which clients reach the nodes.
    pub proxies: Vec<Proxy>,
}

#[expect(clippy::missing_panics_doc, reason = "every call panics when a node does not answer")]
impl Cluster {
    /// Starts it, and waits until it is whole.
    #[must_use]
    pub fn start() -> Self {
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

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        let seeds: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("redis+cluster://{}", seeds.join(","))
    }

    fn configure(&self, node: usize, name: &str, value: &str) {
        self.servers.command(node, &["CONFIG", "SET", name, value]);
    }

    fn is_primary(&self, node: usize) -> bool {
        self.servers.command(node, &["ROLE"])[0] == "master"
    }

    /// The nodes that are primaries now.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
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
    pub fn wait(&self) {
        let reports = |node: usize, words: &[&str], what: &str| {
            let reply = self.servers.command(node, words);
            // The flag `nofailover` is no failure.
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

    /// Kills a primary. Its replica takes over, and the old primary returns without data as a replica.
    pub fn kill(&self, primary: usize) {
        let replica = self.replica(primary);
        self.configure(replica, "cluster-replica-no-failover", "no");
        self.servers.kill(primary);
        until("a replica takes over", || self.is_primary(replica));
        self.servers.start_again(primary);
        until("it follows", || !self.is_primary(primary));
        self.configure(replica, "cluster-replica-no-failover", "yes");
        self.wait();
    }

    /// Orders a failover, which loses nothing.
    pub fn fail_over(&self, primary: usize) {
        let replica = self.replica(primary);
        self.servers.fail_over(replica, &["CLUSTER", "FAILOVER"], PATIENCE, || true, || self.is_primary(replica));
        self.wait();
    }

    /// Moves slots from one node to another.
    pub fn reshard(&self, random: &mut Random, from: usize, to: usize) {
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
