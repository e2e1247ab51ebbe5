//! Finds out which server serves what: from the nodes of a cluster, or from sentinels. A driver sends the questions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use smallvec::SmallVec;

use super::failure::{self, Failure};
use super::handshake::text;
use super::redirect::host_or;
use super::server_directory::{Server, ServerDirectory, Target};
use super::topology::{Shard, Topology};
use crate::error::{Error, ErrorKind};
use crate::store::url::{Address, Deployment};

/// Nodes of a cluster that are asked at the same time.
const NODES_AT_ONCE: usize = 4;

/// A question to one server.
pub(crate) struct Probe {
    pub(crate) number: usize,
    pub(crate) server: Server,
    pub(crate) commands: Arc<[u8]>,
    /// The number of commands.
    pub(crate) replies: usize,
    /// When the server is given up.
    pub(crate) deadline: Instant,
}

/// What a server answered to a probe.
pub(crate) type ProbeReply = Result<SmallVec<[Value; 1]>, Failure>;

/// See the module.
pub(crate) struct Discovery {
    directory: Arc<ServerDirectory>,
    /// Servers that were not asked yet.
    candidates: VecDeque<Server>,
    at_once: usize,
    commands: Arc<[u8]>,
    replies: usize,
    probes: VecDeque<Probe>,
    /// The servers that were asked, by the number of their probe; `None` when they have answered.
    asked: Vec<Option<Server>>,
    deadline: Instant,
    /// When the servers that are being asked are given up.
    round_ends: Instant,
    /// What the sentinels know: the newest failover wins.
    newest: Option<(u64, Topology)>,
    failure: Option<Failure>,
    result: Option<Result<Topology, Failure>>,
}

impl Discovery {
    /// `known` names servers that may know more than those of the URL.
    pub(crate) fn new(
        directory: &Arc<ServerDirectory>,
        known: Option<&Topology>,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        let mut discovery = Self {
            directory: Arc::clone(directory),
            candidates: VecDeque::new(),
            at_once: NODES_AT_ONCE,
            commands: Arc::default(),
            replies: 1,
            probes: VecDeque::new(),
            asked: Vec::new(),
            deadline,
            round_ends: deadline,
            newest: None,
            failure: None,
            result: None,
        };
        match &directory.endpoints.deployment {
            Deployment::Single(_) => discovery.result = single(directory).map(Ok),
            Deployment::Sentinel { sentinels, name, .. } => {
                let mut commands = redis::cmd("SENTINEL").arg("MASTER").arg(name).get_packed_command();
                for question in ["GET-MASTER-ADDR-BY-NAME", "REPLICAS"] {
                    redis::cmd("SENTINEL").arg(question).arg(name).write_packed_command(&mut commands);
                }
                redis::cmd("SENTINEL").arg("MASTERS").write_packed_command(&mut commands);
                (discovery.commands, discovery.replies) = (commands.into(), 4);
                discovery.candidates = sentinels.iter().map(|address| directory.sentinel(address.clone())).collect();
                discovery.at_once = sentinels.len();
            }
            Deployment::Cluster(seeds) => {
                discovery.commands = redis::cmd("CLUSTER").arg("SLOTS").get_packed_command().into();
                let nodes = cluster_nodes(known, seeds).into_iter();
                discovery.candidates = nodes.map(|address| directory.server(address, Target::Primary)).collect();
            }
        }
        discovery.ask_more(now);
        discovery
    }

    fn is_sentinel(&self) -> bool {
        matches!(self.directory.endpoints.deployment, Deployment::Sentinel { .. })
    }

    /// Asks the next servers. Each round gets an equal share of the time that is left; a late sentinel gets half of it.
    fn ask_more(&mut self, now: Instant) {
        if self.result.is_some() {
            return;
        }
        if self.candidates.is_empty() {
            return self.finish();
        }
        let rounds = if self.is_sentinel() { 2 } else { self.candidates.len().div_ceil(self.at_once) as u32 };
        self.round_ends = now + self.deadline.saturating_duration_since(now) / rounds;
        for server in self.candidates.drain(..self.at_once.min(self.candidates.len())) {
            let (number, commands) = (self.asked.len(), Arc::clone(&self.commands));
            self.asked.push(Some(server.clone()));
            let (replies, deadline) = (self.replies, self.round_ends);
            self.probes.push_back(Probe { number, server, commands, replies, deadline });
        }
    }

    fn finish(&mut self) {
        let found = self.newest.take().map(|(_, topology)| topology);
        let late = || Failure::of_server(failure::timed_out(self.directory.shown(), self.directory.timeout()));
        let failure = self.failure.take();
        self.result = Some(found.ok_or_else(|| failure.unwrap_or_else(late)));
    }

    /// A question to send.
    pub(crate) fn poll_probe(&mut self) -> Option<Probe> {
        self.probes.pop_front()
    }

    /// When `handle_timeout` is due.
    pub(crate) const fn poll_timeout(&self) -> Instant {
        self.round_ends
    }

    /// What was found, once.
    pub(crate) fn poll_result(&mut self) -> Option<Result<Topology, Failure>> {
        self.result.take()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if now >= self.round_ends && self.result.is_none() {
            self.asked.iter_mut().for_each(|asked| *asked = None);
            self.end_round(now);
        }
    }

    pub(crate) fn handle_reply(&mut self, number: usize, reply: ProbeReply, now: Instant) {
        let Some(server) = self.asked.get_mut(number).and_then(Option::take) else { return };
        if self.result.is_some() {
            return;
        }
        let (address, reply) = (&server.address, reply.and_then(|replies| accepted(replies, &server.shown)));
        if self.is_sentinel() {
            let Deployment::Sentinel { name, .. } = &self.directory.endpoints.deployment else { return };
            match reply.and_then(|replies| sentinel_topology(&replies, name, address)) {
                Ok((epoch, found)) if self.newest.as_ref().is_none_or(|(newest, _)| epoch > *newest) => {
                    self.newest = Some((epoch, found));
                }
                Ok(_) => {}
                Err(failure) => self.note(failure),
            }
        } else {
            match reply.and_then(|replies| cluster_topology(replies.first().unwrap_or(&Value::Nil), address)) {
                Ok(found) => return self.result = Some(Ok(found)),
                Err(failure) => self.note(failure),
            }
        }
        if self.asked.iter().all(Option::is_none) {
            self.end_round(now);
        }
    }

    fn end_round(&mut self, now: Instant) {
        if self.newest.is_some() || self.candidates.is_empty() || now >= self.deadline {
            self.finish();
        } else {
            self.ask_more(now);
        }
    }

    /// Keeps the failure that says most: a mistake in the configuration before a server that is not there.
    fn note(&mut self, failure: Failure) {
        let weight = |failure: &Failure| match failure.error.kind() {
            ErrorKind::ConfigInvalid => 3,
            ErrorKind::StoreRejected => 2,
            ErrorKind::StoreUnavailable => 1,
            _ => 0,
        };
        if self.failure.as_ref().is_none_or(|known| weight(&failure) > weight(known)) {
            self.failure = Some(failure);
        }
    }
}

/// The topology of a store with one server, which needs no discovery.
pub(crate) fn single(directory: &ServerDirectory) -> Option<Topology> {
    match &directory.endpoints.deployment {
        Deployment::Single(address) => Some(Topology::of_one(Shard { primary: address.clone(), replicas: Vec::new() })),
        _ => None,
    }
}

/// Known primaries first, then those of the URL, then replicas.
fn cluster_nodes(known: Option<&Topology>, seeds: &[Address]) -> Vec<Address> {
    let mut nodes: Vec<Address> = Vec::new();
    let shards = known.map(Topology::shards).unwrap_or_default();
    let primaries = shards.iter().map(|shard| &shard.primary);
    let replicas = shards.iter().flat_map(|shard| &shard.replicas);
    for node in primaries.chain(seeds).chain(replicas) {
        if !nodes.contains(node) {
            nodes.push(node.clone());
        }
    }
    nodes
}

/// The replies, unless the first is an error. A sentinel that does not know the name answers with one: that is an answer.
fn accepted(replies: SmallVec<[Value; 1]>, shown: &str) -> ProbeReply {
    match replies.first() {
        Some(Value::ServerError(error)) if !error.details().is_some_and(|text| text.contains("No such master")) => {
            Err(Failure::of_server(failure::refused(shown, error)))
        }
        _ => Ok(replies),
    }
}

/// The reply to CLUSTER SLOTS.
fn cluster_topology(reply: &Value, here: &Address) -> Result<Topology, Failure> {
    let malformed =
        || Failure::of_server(Error::new(ErrorKind::StoreRejected, format!("{here} sent no list of slots")));
    let Value::Array(ranges) = reply else { return Err(malformed()) };
    let node = |value: &Value| match value {
        Value::Array(items) => match &items[..] {
            [host, Value::Int(port), ..] => {
                Some(Address::Tcp(host_or(text(host).unwrap_or_default(), here)?, u16::try_from(*port).ok()?))
            }
            _ => None,
        },
        _ => None,
    };
    let mut shards = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Value::Array(items) = range else { return Err(malformed()) };
        let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &items[..] else { return Err(malformed()) };
        let primary = node(primary).ok_or_else(malformed)?;
        let shard = Shard { primary, replicas: replicas.iter().filter_map(node).collect() };
        shards.push((*first as usize, *last as usize, shard));
    }
    if shards.is_empty() {
        return Err(Failure::of_server(Error::new(
            ErrorKind::StoreUnavailable,
            format!("{here} is a node of a cluster without slots: it has not been put together yet"),
        )));
    }
    Ok(Topology::of_slots(shards))
}

/// A field of a sentinel's flat list.
fn field<'a>(items: &'a Value, name: &str) -> Option<&'a str> {
    match items {
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value)),
        _ => None,
    }
}

fn listed(items: &Value, here: &Address) -> Option<Address> {
    Some(Address::Tcp(host_or(field(items, "ip")?, here)?, field(items, "port")?.parse().ok()?))
}

/// The reply to SENTINEL GET-MASTER-ADDR-BY-NAME: a host and a port, or nothing.
fn named(reply: &Value, here: &Address) -> Option<Address> {
    let Value::Array(items) = reply else { return None };
    let [host, port] = &items[..] else { return None };
    Some(Address::Tcp(host_or(text(host)?, here)?, text(port)?.parse().ok()?))
}

/// The replies to SENTINEL MASTER, GET-MASTER-ADDR-BY-NAME, REPLICAS and MASTERS: when the last failover was, and which servers
/// there are since. Between the promotion of a replica and the end of the failover, MASTER shows the new epoch with the old
/// address; the address alone is new.
fn sentinel_topology(replies: &[Value], name: &str, here: &Address) -> Result<(u64, Topology), Failure> {
    let [primary, address, replicas, all] = replies else {
        return Err(Failure::of_server(failure::no_answer(&here.to_string())));
    };
    let Some(address) = named(address, here) else {
        let names: Vec<&str> = match all {
            Value::Array(all) => all.iter().filter_map(|items| field(items, "name")).collect(),
            _ => Vec::new(),
        };
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Failure::of_server(Error::config(format!(
            "the sentinel {here} knows no primary called {name:?}: it knows {names}"
        ))));
    };
    let epoch = field(primary, "config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let healthy = |items: &&Value| !field(items, "flags").unwrap_or_default().contains("down");
    let replicas = match replicas {
        Value::Array(replicas) => replicas.iter().filter(healthy).filter_map(|items| listed(items, here)).collect(),
        _ => Vec::new(),
    };
    Ok((epoch, Topology::of_one(Shard { primary: address, replicas })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| Value::BulkString(item.as_bytes().to_vec())).collect())
    }

    #[test]
    fn during_a_failover_the_primary_is_the_promoted_replica() {
        let here = Address::Tcp("10.0.0.9".into(), 26_379);
        let state = |ip: &str, flags: &str| {
            texts(&["name", "m", "ip", ip, "port", "6379", "flags", flags, "config-epoch", "7"])
        };
        let replies = [
            state("10.0.0.1", "reconf_slaves"),
            texts(&["10.0.0.2", "6379"]),
            Value::Array(vec![state("10.0.0.2", "slave"), state("10.0.0.3", "slave,s_down")]),
            Value::Array(vec![state("10.0.0.1", "master")]),
        ];
        let (epoch, found) = sentinel_topology(&replies, "m", &here).expect("a topology");
        let promoted = Address::Tcp("10.0.0.2".into(), 6_379);
        let [shard] = found.shards() else { panic!("one shard") };
        assert_eq!((epoch, &shard.primary, &shard.replicas), (7, &promoted, &vec![promoted.clone()]));
        let unknown = [Value::Nil, Value::Nil, Value::Nil, replies[3].clone()];
        let failure = sentinel_topology(&unknown, "other", &here).expect_err("no such primary");
        assert!(failure.error.message().ends_with("it knows m"), "{}", failure.error.message());
    }
}
