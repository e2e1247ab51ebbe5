//! Finds out which server serves which slots, from nodes of a cluster or from sentinels. A driver sends the questions.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use smallvec::SmallVec;

use super::failure::{self, Failure};
use super::server_directory::{Server, ServerDirectory, Target};
use super::topology::{Shard, Topology};
use super::topology_reply::{cluster_topology, sentinel_topology};
use crate::error::ErrorKind;
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

/// The reply of a server to a probe.
pub(crate) type ProbeReply = Result<SmallVec<[Value; 1]>, Failure>;

/// One search for the servers and their slots.
pub(crate) struct Discovery {
    directory: Arc<ServerDirectory>,
    /// Servers that were not asked yet.
    candidates: VecDeque<Server>,
    at_once: usize,
    commands: Arc<[u8]>,
    replies: usize,
    probes: VecDeque<Probe>,
    /// The servers that were asked, by the number of their probe. `None` once they have answered.
    asked: Vec<Option<Server>>,
    deadline: Instant,
    /// The end of the current round, when servers that have not answered are given up.
    round_ends: Instant,
    /// The topology of the newest failover that a sentinel has reported, with its epoch.
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

    /// Asks the next servers. Each round gets an equal share of the time left. The round of sentinels gets half of it.
    fn ask_more(&mut self, now: Instant) {
        if self.result.is_some() {
            return;
        }
        if self.candidates.is_empty() {
            return self.finish();
        }
        let rounds =
            if self.directory.has_sentinels() { 2 } else { self.candidates.len().div_ceil(self.at_once) as u32 };
        self.round_ends = now + self.deadline.saturating_duration_since(now) / rounds;
        for server in self.candidates.drain(..self.at_once.min(self.candidates.len())) {
            let number = self.asked.len();
            let commands = Arc::clone(&self.commands);
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

    /// Returns the result once, as soon as it is there.
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
        if let Deployment::Sentinel { name, .. } = &self.directory.endpoints.deployment {
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

    /// Keeps the most helpful failure: a mistake in the configuration comes before a server that is not there.
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
    let shards = known.map(Topology::shards).unwrap_or_default();
    let primaries = shards.iter().map(|shard| &shard.primary);
    let replicas = shards.iter().flat_map(|shard| &shard.replicas);
    let mut seen = HashSet::new();
    primaries.chain(seeds).chain(replicas).filter(|node| seen.insert(*node)).cloned().collect()
}

/// The replies, unless the first is an error. The error of a sentinel that does not know the name is an answer.
fn accepted(replies: SmallVec<[Value; 1]>, shown: &str) -> ProbeReply {
    match replies.first() {
        Some(Value::ServerError(error)) if !error.details().is_some_and(|text| text.contains("No such master")) => {
            Err(Failure::of_server(failure::refused(shown, error)))
        }
        _ => Ok(replies),
    }
}
