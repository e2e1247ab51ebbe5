//! Finds out who serves what: from the nodes of a cluster, or from sentinels.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redis::Value;
use rustls::ClientConfig;

use super::chart::{Chart, Shard};
use super::failure::{self, Failure};
use super::hello::{Expected, text};
use super::verdict::host_or;
use super::wire::{Server, Wire};
use super::{socket, tls};
use crate::error::{Error, ErrorKind, Result};
use crate::store::url::{Address, Deployment, Endpoints, Login};

/// Nodes of a cluster that are asked at the same time.
const ASKED: usize = 4;

/// What is known of a place before anybody is asked.
pub(super) struct Survey {
    place: Endpoints,
    login: Arc<Login>,
    sentinels: Arc<Login>,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
}

impl Survey {
    /// # Errors
    /// `config_invalid` for certificates that cannot be used.
    pub(super) fn new(place: Endpoints, timeout: Duration) -> Result<Self> {
        let tls = place.certificates.as_ref().map(tls::config).transpose()?;
        let sentinels = match &place.deployment {
            Deployment::Sentinel { login, .. } => login.clone(),
            _ => Login::default(),
        };
        Ok(Self { login: Arc::new(place.login.clone()), sentinels: Arc::new(sentinels), tls, timeout, place })
    }

    pub(super) fn shown(&self) -> &str {
        &self.place.shown
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the one who serves a key may change.
    pub(super) fn has_others(&self) -> bool {
        !matches!(self.place.deployment, Deployment::Single(_))
    }

    pub(super) fn has_slots(&self) -> bool {
        matches!(self.place.deployment, Deployment::Cluster(_))
    }

    pub(super) fn reads_replicas(&self) -> bool {
        self.place.read_replicas
    }

    /// How the server at an address is greeted.
    pub(super) fn server(&self, address: Address, replica: bool) -> Server {
        let expected = match (&self.place.deployment, replica) {
            (Deployment::Single(_), _) => Expected::Single,
            (Deployment::Sentinel { .. }, false) => Expected::Primary,
            (Deployment::Sentinel { .. }, true) => Expected::Replica,
            (Deployment::Cluster(_), false) => Expected::Node,
            (Deployment::Cluster(_), true) => Expected::ReplicaNode,
        };
        let shown = match self.place.deployment {
            Deployment::Single(_) => self.place.shown.clone(),
            _ => format!("{address} of {}", self.place.shown),
        };
        let (login, tls) = (Arc::clone(&self.login), self.tls.clone());
        Server { address, login, tls, expected, shown, timeout: self.timeout }
    }

    /// Draws the chart. `known` are servers that may know more than those in the URL.
    pub(super) fn draw(&self, known: Option<&Chart>, deadline: Instant) -> std::result::Result<Chart, Failure> {
        match &self.place.deployment {
            Deployment::Single(address) => Ok(Chart::of_one(Shard { primary: address.clone(), replicas: Vec::new() })),
            Deployment::Sentinel { sentinels, name, .. } => self.ask_sentinels(sentinels, name, deadline),
            Deployment::Cluster(seeds) => {
                let mut nodes: Vec<Address> = Vec::new();
                let shards = known.map(Chart::shards).unwrap_or_default();
                let primaries = shards.iter().map(|shard| &shard.primary);
                let replicas = shards.iter().flat_map(|shard| &shard.replicas);
                for node in primaries.chain(seeds).chain(replicas) {
                    if !nodes.contains(node) {
                        nodes.push(node.clone());
                    }
                }
                self.ask_nodes(&nodes, deadline)
            }
        }
    }

    fn ask_nodes(&self, nodes: &[Address], deadline: Instant) -> std::result::Result<Chart, Failure> {
        let mut failure = None;
        for (index, some) in nodes.chunks(ASKED).enumerate() {
            let rounds = nodes.len().div_ceil(ASKED) - index;
            let until = share(deadline, rounds as u32);
            let ask = redis::cmd("CLUSTER").arg("SLOTS").get_packed_command();
            let answers = ask_each(some.iter().map(|node| self.server(node.clone(), false)), &ask, 1, until);
            while let Some((node, answer)) = next(&answers, until) {
                match answer.and_then(|mut replies| slots(&replies.remove(0), &node)) {
                    Ok(chart) => return Ok(chart),
                    Err(new) => failure = Some(worse(failure, new)),
                }
            }
        }
        Err(failure.unwrap_or_else(|| Failure::elsewhere(failure::late(&self.place.shown, self.timeout))))
    }

    /// Asks all sentinels at once; who has seen the newest failover is believed.
    fn ask_sentinels(
        &self,
        sentinels: &[Address],
        name: &str,
        deadline: Instant,
    ) -> std::result::Result<Chart, Failure> {
        let servers = sentinels.iter().map(|address| Server {
            shown: format!("the sentinel {address} of {}", self.place.shown),
            address: address.clone(),
            login: Arc::clone(&self.sentinels),
            tls: self.tls.clone(),
            expected: Expected::Sentinel,
            timeout: self.timeout,
        });
        let mut ask = redis::cmd("SENTINEL").arg("MASTER").arg(name).get_packed_command();
        redis::cmd("SENTINEL").arg("REPLICAS").arg(name).write_packed_command(&mut ask);
        redis::cmd("SENTINEL").arg("MASTERS").write_packed_command(&mut ask);
        let answers = ask_each(servers, &ask, 3, share(deadline, 2));
        let (mut best, mut failure): (Option<(u64, Chart)>, Option<Failure>) = (None, None);
        // A sentinel that is late is not waited for longer than until half of the time is over.
        while let Some((address, answer)) = next(&answers, share(deadline, 2)) {
            let found = answer.and_then(|replies| watched(&replies, name, &address));
            match found {
                Ok((epoch, chart)) if best.as_ref().is_none_or(|(other, _)| epoch > *other) => {
                    best = Some((epoch, chart));
                }
                Ok(_) => {}
                Err(new) => failure = Some(worse(failure, new)),
            }
        }
        best.map(|(_, chart)| chart).ok_or_else(|| {
            failure.unwrap_or_else(|| Failure::elsewhere(failure::late(&self.place.shown, self.timeout)))
        })
    }
}

/// An equal share of the time that is left.
fn share(deadline: Instant, among: u32) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / among
}

/// The failure that says most: a mistake of ours before a server that is not there.
fn worse(old: Option<Failure>, new: Failure) -> Failure {
    let weight = |failure: &Failure| match failure.error.kind() {
        ErrorKind::ConfigInvalid => 3,
        ErrorKind::StoreRejected => 2,
        ErrorKind::StoreUnavailable => 1,
        _ => 0,
    };
    match old {
        Some(old) if weight(&old) >= weight(&new) => old,
        _ => new,
    }
}

type Answer = std::result::Result<Vec<Value>, Failure>;

/// Asks servers the same commands at once, each on a thread that ends by then.
fn ask_each(
    servers: impl Iterator<Item = Server>,
    ask: &[u8],
    commands: usize,
    until: Instant,
) -> Receiver<(Address, Answer)> {
    let (sender, answers) = channel();
    for server in servers {
        let (sender, ask) = (sender.clone(), ask.to_vec());
        let run = move || {
            let answer = Wire::open(&server, until).and_then(|mut wire| {
                wire.exchange(&ask, commands, until).map_err(|broken| server.failure(&broken.error, false))
            });
            let answer = answer.and_then(|replies| match replies.first() {
                // An unknown name is an answer too.
                Some(Value::ServerError(error))
                    if !error.details().is_some_and(|text| text.contains("No such master")) =>
                {
                    Err(Failure::elsewhere(failure::refused(&server.shown, error)))
                }
                _ => Ok(replies),
            });
            // The first answer may have been enough.
            let _ = sender.send((server.address, answer));
        };
        // Without a thread this one is not asked.
        drop(std::thread::Builder::new().name("tidegate-survey".to_owned()).spawn(run));
    }
    answers
}

fn next(answers: &Receiver<(Address, Answer)>, until: Instant) -> Option<(Address, Answer)> {
    // Late by a little: the threads themselves end by then, and say why.
    let left = socket::left(until).unwrap_or_default() + Duration::from_millis(1);
    answers.recv_timeout(left).ok()
}

/// The chart as a node draws it.
fn slots(reply: &Value, here: &Address) -> std::result::Result<Chart, Failure> {
    let garbled = || Failure::elsewhere(Error::new(ErrorKind::StoreRejected, format!("{here} sent no list of slots")));
    let Value::Array(ranges) = reply else { return Err(garbled()) };
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
        let Value::Array(items) = range else { return Err(garbled()) };
        let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &items[..] else { return Err(garbled()) };
        let primary = node(primary).ok_or_else(garbled)?;
        let shard = Shard { primary, replicas: replicas.iter().filter_map(node).collect() };
        shards.push((*first as usize, *last as usize, shard));
    }
    if shards.is_empty() {
        return Err(Failure::elsewhere(Error::new(
            ErrorKind::StoreUnavailable,
            format!("{here} is a node of a cluster without slots: it has not been put together yet"),
        )));
    }
    Ok(Chart::of_slots(shards))
}

/// The field of a sentinel's flat list.
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

/// When the last failover was, and who serves since.
fn watched(replies: &[Value], name: &str, here: &Address) -> std::result::Result<(u64, Chart), Failure> {
    let [primary, replicas, all] = replies else {
        return Err(Failure::elsewhere(failure::silence(&here.to_string())));
    };
    let Some(address) = listed(primary, here) else {
        let names: Vec<&str> = match all {
            Value::Array(all) => all.iter().filter_map(|items| field(items, "name")).collect(),
            _ => Vec::new(),
        };
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Failure::elsewhere(Error::config(format!(
            "the sentinel {here} knows no primary called {name:?}: it knows {names}"
        ))));
    };
    let epoch = field(primary, "config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let healthy = |items: &&Value| !field(items, "flags").unwrap_or_default().contains("down");
    let replicas = match replicas {
        Value::Array(replicas) => replicas.iter().filter(healthy).filter_map(|items| listed(items, here)).collect(),
        _ => Vec::new(),
    };
    Ok((epoch, Chart::of_one(Shard { primary: address, replicas })))
}
