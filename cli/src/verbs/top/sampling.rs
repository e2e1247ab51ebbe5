//! Looks at a bounded number of a store's keys in each reading. Servers are asked in small steps. SCAN continues where
//! it stopped, and no command runs for longer than a check of a few keys. A file is read without its locks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::Value;
#[cfg(unix)]
use tidegate::host::StoredFile;
use tidegate::host::{self, KeyNames, ServerAddress, ServerConnection, StoreServers, StoredTable};
use tidegate::{Decision, Error, ErrorKind, Policy};

use crate::Result;
use crate::reply::moment;

/// Keys that one SCAN looks at, and commands that are sent together.
const STEP: usize = 100;
/// The pause between two steps on a server, so that its other clients come first.
const PAUSE: Duration = Duration::from_millis(2);
/// The most bytes to read of a value. Longer ones are those of a `sliding-window` with many granules, or of many holds.
const MAX_VALUE: usize = 4_096;
/// The most keys at their limit that each reading reads again.
const MAX_TRACKED: usize = 500;
/// The most policies to compare a value with.
const MAX_POLICIES: usize = 100;

/// A key in Redis that is at its limit.
#[derive(Debug)]
pub(super) struct LimitedKey {
    /// The policies that its value fits.
    pub(super) policies: Vec<String>,
    pub(super) decision: Decision,
}

/// The results of one reading.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) servers: usize,
    /// Keys that the servers have, of all programs.
    pub(super) all_keys: u64,
    /// The examined keys, those with the prefix among them, and those of the prefix that fit no known policy.
    pub(super) scanned: usize,
    pub(super) of_prefix: usize,
    pub(super) unknown: usize,
    pub(super) slowest: Duration,
    /// The errors of servers that could not be asked.
    pub(super) failures: Vec<String>,
    /// By the key in Redis, or the name in the file.
    pub(super) limited: HashMap<Vec<u8>, LimitedKey>,
}

/// One primary.
struct Server {
    address: ServerAddress,
    connection: Option<ServerConnection>,
    cursor: Vec<u8>,
    /// Keys at their limit in the reading before.
    tracked: Vec<Vec<u8>>,
}

/// A file that processes share.
#[cfg(unix)]
pub(super) struct FileSampler {
    file: StoredFile,
    /// Keys at their limit in the reading before.
    tracked: Vec<Vec<u8>>,
}

#[cfg(unix)]
impl FileSampler {
    pub(super) const fn new(file: StoredFile) -> Self {
        Self { file, tracked: Vec::new() }
    }

    /// Looks at about `budget` of its keys.
    pub(super) fn read(&mut self, budget: usize, policies: &[Policy], sample: &mut Sample) {
        let began = Instant::now();
        let policies = &policies[..policies.len().min(MAX_POLICIES)];
        let (now, mut limited) = (self.file.now(), Vec::new());
        let tracked = std::mem::take(&mut self.tracked).into_iter();
        for (value, name) in tracked.filter_map(|name| Some((self.file.value(&name)?, name))) {
            if sample.note(&name, &shown_digest(&name), &value, policies, now, false) {
                limited.push(name);
            }
        }
        let read = self.file.read(budget, |name, value| {
            if sample.note(name, &shown_digest(name), value, policies, now, true) {
                limited.push(name.to_vec());
            }
        });
        match read {
            Ok(scanned) => sample.scanned += scanned,
            Err(error) => sample.failures.push(error.to_string()),
        }
        sample.all_keys = self.file.keys();
        sample.servers = 1;
        sample.slowest = began.elapsed();
        limited.sort_unstable();
        limited.dedup();
        limited.truncate(MAX_TRACKED);
        self.tracked = limited;
    }
}

/// A table of PostgreSQL.
pub(super) struct TableSampler {
    table: StoredTable,
    /// Keys at their limit in the reading before.
    tracked: Vec<Vec<u8>>,
    prefix: usize,
}

impl TableSampler {
    pub(super) const fn new(table: StoredTable, prefix: &str) -> Self {
        Self { table, tracked: Vec::new(), prefix: prefix.len() }
    }

    /// Looks at up to `budget` of its rows.
    fn read(&mut self, budget: usize, policies: &[Policy], sample: &mut Sample) {
        let began = Instant::now();
        let policies = &policies[..policies.len().min(MAX_POLICIES)];
        let rows = match self.table.read(&std::mem::take(&mut self.tracked), budget) {
            Ok(rows) => rows,
            Err(error) => return sample.failures.push(error.to_string()),
        };
        let mut limited = Vec::new();
        sample.scanned += rows.found.len();
        for (counts, (name, value)) in
            rows.tracked.into_iter().map(|row| (false, row)).chain(rows.found.into_iter().map(|row| (true, row)))
        {
            let digest = shown_digest(name.get(self.prefix..).unwrap_or_default());
            if sample.note(&name, &digest, &value, policies, rows.now, counts) {
                limited.push(name);
            }
        }
        (sample.all_keys, sample.servers, sample.slowest) = (rows.keys, 1, began.elapsed());
        limited.sort_unstable();
        limited.dedup();
        limited.truncate(MAX_TRACKED);
        self.tracked = limited;
    }
}

/// The keys of one store URL.
pub(super) enum Sampler {
    Servers(ServerSampler),
    Table(Box<TableSampler>),
    #[cfg(unix)]
    File(Box<FileSampler>),
}

impl Sampler {
    /// Looks at up to `budget` keys of each server, or at about so many of a file.
    pub(super) fn read(&mut self, budget: usize, policies: &[Policy], sample: &mut Sample) {
        match self {
            Self::Servers(servers) => servers.read(budget, policies, sample),
            Self::Table(table) => table.read(budget, policies, sample),
            #[cfg(unix)]
            Self::File(file) => file.read(budget, policies, sample),
        }
    }

    /// The name that the store has in the place of a key.
    pub(super) fn name(&self, names: &KeyNames, policy: &Policy, key: &str) -> Vec<u8> {
        match self {
            Self::Servers(_) => host::redis_key(names, policy, key),
            Self::Table(table) => table.table.name(policy, key),
            #[cfg(unix)]
            Self::File(file) => file.file.name(policy, key),
        }
    }
}

/// The primaries of one store URL.
pub(super) struct ServerSampler {
    store: StoreServers,
    servers: Vec<Server>,
    prefix: String,
}

impl ServerSampler {
    pub(super) fn new(store: StoreServers, prefix: &str) -> Self {
        Self { store, servers: Vec::new(), prefix: prefix.to_owned() }
    }

    /// Looks at up to `budget` keys of each server.
    pub(super) fn read(&mut self, budget: usize, policies: &[Policy], sample: &mut Sample) {
        let shards = match self.store.shards() {
            Ok(shards) => shards,
            Err(error) => return sample.failures.push(error.to_string()),
        };
        let mut known = std::mem::take(&mut self.servers);
        for shard in shards {
            let at = known.iter().position(|server| server.address == shard.primary);
            self.servers.push(match at {
                Some(at) => known.swap_remove(at),
                None => Server { address: shard.primary, connection: None, cursor: b"0".to_vec(), tracked: Vec::new() },
            });
        }
        let policies = &policies[..policies.len().min(MAX_POLICIES)];
        for server in &mut self.servers {
            match server.read(&self.store, &self.prefix, budget, policies, sample) {
                Ok(()) => sample.servers += 1,
                // A connection that failed is not used again.
                Err(error) => sample.failures.push(format!("{}: {error}", server.address)),
            }
        }
    }
}

/// One reading of a server: the policies to compare values with, and the sample for the results.
struct ServerReading<'a> {
    connection: ServerConnection,
    policies: &'a [Policy],
    prefix: &'a str,
    sample: &'a mut Sample,
}

impl Server {
    fn read(
        &mut self,
        store: &StoreServers,
        prefix: &str,
        budget: usize,
        policies: &[Policy],
        sample: &mut Sample,
    ) -> Result<()> {
        let connection = self.connection.take().map_or_else(|| store.connect(&self.address), Ok)?;
        let mut reading = ServerReading { connection, policies, prefix, sample };
        if let Value::Int(keys) = reading.timed(&[&[b"DBSIZE".to_vec()]])?.swap_remove(0) {
            reading.sample.all_keys += keys.unsigned_abs();
        }
        let mut limited = Vec::new();
        for keys in std::mem::take(&mut self.tracked).chunks(STEP) {
            limited.extend(reading.values(keys, false)?);
        }
        let pattern = host::pattern_of_keys(prefix);
        let mut scanned = 0;
        while scanned < budget {
            let step = STEP.min(budget - scanned);
            let count = step.to_string();
            let scan = [b"SCAN", &*self.cursor, b"MATCH", &*pattern, b"COUNT", count.as_bytes()];
            let reply = reading.timed(&[&scan.map(<[u8]>::to_vec)])?.swap_remove(0);
            if let Value::ServerError(_) = reply {
                return Err(refused("SCAN", &reply));
            }
            let (cursor, keys) = host::scanned_keys(reply).ok_or_else(|| refused("SCAN", &Value::Nil))?;
            scanned += step;
            limited.extend(reading.values(&keys, true)?);
            self.cursor = cursor;
            if self.cursor == b"0" {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        reading.sample.scanned += scanned;
        limited.sort_unstable();
        limited.dedup();
        limited.truncate(MAX_TRACKED);
        (self.tracked, self.connection) = (limited, Some(reading.connection));
        Ok(())
    }
}

impl Sample {
    /// Compares a key's value with the policies. True if it is at its limit. Keys of an earlier reading do not count.
    fn note(&mut self, key: &[u8], digest: &str, value: &[u8], policies: &[Policy], now: u64, counts: bool) -> bool {
        self.of_prefix += usize::from(counts);
        let fits =
            |policy: &Policy| Some((policy.name().to_owned(), host::stored_decision(policy, digest, value, now)?));
        let (policies, decisions): (Vec<String>, Vec<Decision>) = policies.iter().filter_map(fits).unzip();
        self.unknown += usize::from(counts && policies.is_empty() && !value.is_empty());
        let Some(decision) = decisions.into_iter().find(is_limited) else { return false };
        self.limited.insert(key.to_vec(), LimitedKey { policies, decision });
        true
    }
}

impl ServerReading<'_> {
    /// Sends commands together, and notes how long that took.
    fn timed(&mut self, commands: &[&[Vec<u8>]]) -> Result<Vec<Value>> {
        let began = Instant::now();
        let replies = self.connection.ask_all(commands)?;
        self.sample.slowest = self.sample.slowest.max(began.elapsed());
        Ok(replies)
    }

    /// Reads the values of keys, and returns the keys that are at their limit.
    fn values(&mut self, keys: &[Vec<u8>], counts: bool) -> Result<Vec<Vec<u8>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let last = (MAX_VALUE - 1).to_string();
        let get = |key: &Vec<u8>| [b"GETRANGE", &**key, b"0", last.as_bytes()].map(<[u8]>::to_vec);
        let gets: Vec<_> = keys.iter().map(get).collect();
        let time_command = [b"TIME".to_vec()];
        let mut commands: Vec<&[Vec<u8>]> = gets.iter().map(<[_; 4]>::as_slice).collect();
        commands.push(&time_command);
        let mut replies = self.timed(&commands)?;
        let time = replies.pop().unwrap_or(Value::Nil);
        let now = moment(&time).ok_or_else(|| refused("TIME", &time))?.as_micros() as u64;
        let mut limited = Vec::new();
        for (key, reply) in keys.iter().zip(replies) {
            let value = match reply {
                Value::BulkString(value) => value,
                // Another program's key of another type, or a key of a slot that has just moved.
                Value::ServerError(error) if matches!(error.code(), "WRONGTYPE" | "MOVED" | "ASK" | "TRYAGAIN") => {
                    continue;
                }
                other => return Err(refused("GETRANGE", &other)),
            };
            let digest = shown_digest(key.get(self.prefix.len()..).unwrap_or_default());
            if self.sample.note(key, &digest, &value, self.policies, now, counts) {
                limited.push(key.clone());
            }
        }
        Ok(limited)
    }
}

fn is_limited(decision: &Decision) -> bool {
    decision.next_after() != Some(Duration::ZERO) || host::block_left(decision).is_some()
}

/// The digest of a key, for people.
fn shown_digest(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(command: &str, reply: &Value) -> Error {
    let why = match reply {
        Value::ServerError(error) => {
            format!("the server refuses {command}: {} {}", error.code(), error.details().unwrap_or_default())
        }
        _ => format!("the server has answered {command} with another kind of reply"),
    };
    let message =
        format!("{why}; `top` needs +dbsize +scan +getrange +time to look at keys, and none of them with --sample 0");
    Error::new(ErrorKind::StoreRejected, message)
}
