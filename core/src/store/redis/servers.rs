//! The servers of a store, for tools that send them other commands than script calls.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::io::{BlockingCalls, CommandConnection, Connector};
use super::protocol::{ServerDirectory, Target, no_answer};
use super::script::{self, Request};
use crate::error::Result;
use crate::plan::plan_cache::plan_of;
use crate::plan::{LimitTag, Plan};
use crate::policy::Policy;
use crate::process::log::Log;
use crate::store::key_names::KeyNames;
use crate::store::request::{Answer, Entry, Operation};
use crate::store::url::{Address, Deployment, Endpoints, StoreUrl};

/// The most bytes of a reply.
const MAX_REPLY: usize = 16 << 20;

/// The servers of one store URL. It connects as a limiter does: with TLS, unix sockets, sentinels and clusters.
pub struct StoreServers {
    calls: BlockingCalls,
    directory: Arc<ServerDirectory>,
}

/// A server that holds keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    address: Address,
    target: Target,
}

/// A primary and its replicas, as the sentinels or the cluster name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardServers {
    /// The server that takes writes.
    pub primary: ServerAddress,
    /// Its copies.
    pub replicas: Vec<ServerAddress>,
}

/// A connection to one server. The user of the URL has logged in.
pub struct ServerConnection {
    connection: CommandConnection,
    timeout: Duration,
    shown: String,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl StoreServers {
    /// The servers that a URL names, or `None` for `memory://`. It does not connect yet.
    ///
    /// # Errors
    /// `config_invalid` if the URL or one of its certificates is wrong.
    pub fn of(url: &str, timeout: Duration) -> Result<Option<Self>> {
        let StoreUrl::Redis(endpoints) = StoreUrl::parse(url)? else { return Ok(None) };
        let connector = Arc::new(Connector::new(&endpoints, Log::new(None))?);
        let directory = Arc::new(ServerDirectory::new(*endpoints, timeout));
        let calls = BlockingCalls::new(Arc::clone(&directory), connector, "".into());
        Ok(Some(Self { calls, directory }))
    }

    fn endpoints(&self) -> &Endpoints {
        &self.directory.endpoints
    }

    /// The URL without secrets.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.directory.shown()
    }

    /// `single`, `sentinel` or `cluster`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.endpoints().deployment {
            Deployment::Single(_) => "single",
            Deployment::Sentinel { .. } => "sentinel",
            Deployment::Cluster(_) => "cluster",
        }
    }

    /// True if a replica may answer a peek.
    #[must_use]
    pub fn reads_replicas(&self) -> bool {
        self.endpoints().read_replicas
    }

    /// True if others can read the traffic, because it leaves this machine unencrypted.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let is_elsewhere = |address: &Address| match address {
            Address::Tcp(host, _) => {
                &**host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Address::Unix(_) => false,
        };
        self.endpoints().certificates.is_none() && self.endpoints().deployment.named().iter().any(is_elsewhere)
    }

    /// True if calls, and the password, may go to any host that a server names.
    #[must_use]
    pub fn follows_any(&self) -> bool {
        self.endpoints().follow.is_none() && !matches!(self.endpoints().deployment, Deployment::Single(_))
    }

    /// The user that logs in, if the URL names one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.endpoints().login.user.as_deref()
    }

    /// The primaries and their replicas.
    ///
    /// # Errors
    /// The errors of the store.
    pub fn shards(&self) -> Result<Vec<ShardServers>> {
        let topology = self.calls.topology(Instant::now() + self.directory.timeout())?;
        let server = |address: &Address, target| ServerAddress { address: address.clone(), target };
        let shards = topology.shards().iter().map(|shard| ShardServers {
            primary: server(&shard.primary, Target::Primary),
            replicas: shard.replicas.iter().map(|address| server(address, Target::Replica)).collect(),
        });
        Ok(shards.collect())
    }

    /// A new connection to a server.
    ///
    /// # Errors
    /// The errors of the store, and `config_invalid` if the server is of another kind than the URL names.
    pub fn connect(&self, server: &ServerAddress) -> Result<ServerConnection> {
        let timeout = self.directory.timeout();
        // A replica of a cluster is greeted as a node: no command here reads its keys, so it needs no READONLY.
        let target = if self.directory.has_slots() { Target::Primary } else { server.target };
        let connection = self.calls.open(&server.address, target, Instant::now() + timeout)?;
        Ok(ServerConnection { connection, timeout, shown: server.to_string() })
    }
}

/// The name of the Redis key that holds the usage of a policy and key.
#[must_use]
pub fn redis_key(names: &KeyNames, policy: &Policy, key: &str) -> Vec<u8> {
    let (plan, operation) = (plan_of(policy), Operation::peek(1));
    Request::new(names, &Entry { plan: &plan, key, operation }).redis_key.as_bytes().to_vec()
}

/// Answers from a stored value as a peek at that moment would.
pub(crate) fn stored_answer(plan: &Plan, value: &[u8], now: u64) -> Option<Answer> {
    script::answer_of_value(plan, value, now)
}

/// The override in a stored value, if one is in force at that moment.
pub(crate) fn stored_override(value: &[u8], now: u64) -> Option<&str> {
    script::override_of_value(value, now)
}

impl ServerConnection {
    /// Sends a command and returns its reply, which is a `Value::ServerError` if the server refuses it.
    ///
    /// # Errors
    /// Why there is no reply.
    pub fn ask<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<Value> {
        Ok(self.ask_all(&[words])?.swap_remove(0))
    }

    /// Sends commands together and returns their replies, in order.
    ///
    /// # Errors
    /// Why there are no replies.
    pub fn ask_all<T: AsRef<[u8]>>(&mut self, commands: &[&[T]]) -> Result<Vec<Value>> {
        let mut bytes = Vec::new();
        for words in commands {
            let mut command = redis::Cmd::new();
            for word in *words {
                command.arg(word.as_ref());
            }
            command.write_packed_command(&mut bytes);
        }
        let deadline = Instant::now() + self.timeout;
        let replies =
            self.connection.run(&bytes, commands.len(), MAX_REPLY, deadline).map_err(|failure| failure.error)?;
        if replies.len() == commands.len() { Ok(replies.into_vec()) } else { Err(no_answer(&self.shown)) }
    }
}

/// The limits that a value in Redis counts, whatever its policy: those of the release that wrote it, and those of
/// others. `None` for bytes that are no value of this version, and for a key with an override.
#[must_use]
pub fn stored_limits(value: &[u8]) -> Option<(Vec<String>, Vec<String>)> {
    let (own, others) = script::limits_of_value(value)?;
    let names = |tags: Vec<LimitTag>| tags.iter().map(ToString::to_string).collect();
    Some((names(own), names(others)))
}
