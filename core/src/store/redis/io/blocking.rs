//! Blocking calls. Each runs on its caller's thread and has a connection to itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::process::lock::Mutex;
use arc_swap::ArcSwapOption;
use redis::Value;

use super::attempts::discover;
use super::connection::{CommandConnection, Connector};
use super::pool::Pool;
use crate::error::Result as StoreResult;
use crate::store::redis::protocol::{
    CallState, Discovery, DiscoverySchedule, Failure, NextStep, RETRY_PAUSE, ServerDirectory, Target, Topology,
    timed_out, uncovered,
};
use crate::store::redis::script::{Batch, Grouping, Requests};
use crate::store::request::Answer;
use crate::store::url::Address;

/// From this many pools on, beside those of primaries, pools of servers that the topology does not name are dropped.
const MAX_OTHERS: usize = 64;

/// Makes calls on the threads of their callers.
pub(crate) struct BlockingCalls {
    directory: Arc<ServerDirectory>,
    connector: Arc<Connector>,
    prefix: Arc<str>,
    known: ArcSwapOption<KnownServers>,
    /// True if the topology may be wrong. Then the next call discovers it anew.
    topology_is_stale: AtomicBool,
    /// Held by the thread that discovers the topology.
    schedule: Mutex<DiscoverySchedule>,
}

/// A topology and the connections that belong to it.
struct KnownServers {
    topology: Topology,
    /// One for each shard.
    primaries: Vec<Arc<Pool>>,
    others: Mutex<HashMap<(Address, Target), Arc<Pool>>>,
}

impl BlockingCalls {
    pub(crate) fn new(directory: Arc<ServerDirectory>, connector: Arc<Connector>, prefix: Arc<str>) -> Self {
        let (known, topology_is_stale) = (ArcSwapOption::empty(), AtomicBool::new(false));
        Self { directory, connector, prefix, known, topology_is_stale, schedule: Mutex::default() }
    }

    pub(crate) const fn prefix(&self) -> &Arc<str> {
        &self.prefix
    }

    /// Runs requests of one slot.
    pub(crate) fn run(
        &self,
        requests: Requests,
        grouping: Grouping,
        time: Option<u64>,
        slot: u16,
        call: CallState,
    ) -> StoreResult<Vec<StoreResult<Answer>>> {
        let mut batch = Batch::new(Arc::clone(&self.prefix), time, grouping, requests);
        let reply = self.call(&mut batch, slot, call).map_err(|failure| failure.error)?;
        batch.answers(reply)
    }

    fn call(&self, batch: &mut Batch, slot: u16, mut call: CallState) -> Result<Value, Failure> {
        let mut now = Instant::now();
        if call.prefers_replica() && self.schedule.try_lock().is_some_and(|schedule| schedule.replicas_are_old(now)) {
            self.doubt_topology();
        }
        let (several, shown) = (self.directory.has_several_servers(), self.directory.shown());
        let mut known = self.known(call.deadline)?;
        let mut asking = None;
        loop {
            let is_asking = asking.is_some();
            let Some((pool, target)) = self.pool(&known, slot, &call, asking.take()) else {
                self.doubt_topology();
                pause(&call, Failure::of_server(uncovered(shown, slot)))?;
                known = self.rediscover(known, call.deadline);
                now = Instant::now();
                continue;
            };
            call.begin_attempt(target, now);
            let obstacle = match pool.call(batch, is_asking, several, now, call.attempt_deadline) {
                Ok(reply) => return Ok(reply),
                Err(obstacle) => obstacle,
            };
            let after = call.after(obstacle, several, shown);
            if after.topology_is_stale {
                self.doubt_topology();
            }
            if let Some((slot, address)) = after.moved {
                known = self.move_slot(&known, slot, address);
            }
            if after.reconnect {
                pool.clear();
            }
            match after.next {
                NextStep::Route => {}
                NextStep::Ask(address) => asking = Some(address),
                NextStep::RouteAfterPause(error) => {
                    pause(&call, Failure::of_server(error))?;
                    if self.topology_is_stale.load(Ordering::Relaxed) {
                        known = self.rediscover(known, call.deadline);
                    }
                }
                NextStep::RouteAfterDiscovery(failure) => {
                    known = self.rediscover(known, call.deadline);
                    if known.primary(slot).is_some_and(|primary| primary.server.address == pool.server.address) {
                        // The next call asks again before it connects, because the server may be back but replaced.
                        self.doubt_topology();
                        return Err(failure);
                    }
                }
                NextStep::Fail(failure) => return Err(failure),
            }
            now = Instant::now();
        }
    }

    /// The pool for the next attempt, or `None` if no primary serves the slot.
    fn pool(
        &self,
        known: &KnownServers,
        slot: u16,
        call: &CallState,
        asking: Option<Address>,
    ) -> Option<(Arc<Pool>, Target)> {
        if let Some(address) = asking {
            return Some((self.other(known, address, Target::Primary), Target::Primary));
        }
        if call.prefers_replica()
            && let Some(address) = known.topology.replica(slot)
        {
            return Some((self.other(known, address.clone(), Target::Replica), Target::Replica));
        }
        Some((Arc::clone(known.primary(slot)?), Target::Primary))
    }

    fn other(&self, known: &KnownServers, address: Address, target: Target) -> Arc<Pool> {
        let is_primary = |pool: &&Arc<Pool>| target == Target::Primary && pool.server.address == address;
        if let Some(pool) = known.primaries.iter().find(is_primary) {
            return Arc::clone(pool);
        }
        let new = |(address, target): &(Address, Target)| self.new_pool(address, *target);
        let mut others = known.others.lock();
        if others.len() >= MAX_OTHERS {
            // Servers may redirect calls to ever new addresses.
            others.retain(|(address, _), _| known.topology.has_replica(address));
        }
        Arc::clone(others.entry((address, target)).or_insert_with_key(new))
    }

    fn new_pool(&self, address: &Address, target: Target) -> Arc<Pool> {
        Arc::new(Pool::new(self.directory.server(address.clone(), target), Arc::clone(&self.connector)))
    }

    /// The topology, which the first call discovers.
    pub(crate) fn topology(&self, deadline: Instant) -> StoreResult<Topology> {
        self.known(deadline).map(|known| known.topology.clone()).map_err(|failure| failure.error)
    }

    /// The known servers, discovered anew if they may be wrong.
    fn known(&self, deadline: Instant) -> Result<Arc<KnownServers>, Failure> {
        match self.known.load_full() {
            Some(known) if !self.topology_is_stale.load(Ordering::Relaxed) => Ok(known),
            Some(known) => Ok(self.rediscover(known, deadline)),
            None => {
                let Some(mut schedule) = self.schedule.try_lock_until(deadline) else {
                    let late = timed_out(self.directory.shown(), self.directory.timeout());
                    return Err(Failure::of_server(late));
                };
                if let Some(known) = self.known.load_full() {
                    return Ok(known);
                }
                let topology = self.discover(None, deadline)?;
                schedule.end(Instant::now());
                Ok(self.keep(topology, None))
            }
        }
    }

    /// The topology may be wrong: the next call discovers it anew.
    pub(crate) fn doubt_topology(&self) {
        self.topology_is_stale.store(true, Ordering::Relaxed);
    }

    /// A connection for commands that are not script calls.
    pub(crate) fn open(&self, address: &Address, target: Target, deadline: Instant) -> StoreResult<CommandConnection> {
        let server = self.directory.server(address.clone(), target);
        self.connector.open_for_commands(server, deadline).map_err(|failure| failure.error)
    }

    /// Finds out again which keys a primary evicts.
    pub(crate) fn check_eviction(&self, address: &Address, deadline: Instant) {
        self.connector.check_eviction(&self.directory.server(address.clone(), Target::Primary), deadline);
    }

    fn discover(&self, known: Option<&Topology>, deadline: Instant) -> Result<Topology, Failure> {
        discover(&self.connector, Discovery::new(&self.directory, known, Instant::now(), deadline))
    }

    /// Discovers the topology anew, unless another thread does or just did. If that fails, the old topology stays.
    fn rediscover(&self, known: Arc<KnownServers>, deadline: Instant) -> Arc<KnownServers> {
        let Some(mut schedule) = self.schedule.try_lock() else { return known };
        let now = Instant::now();
        if deadline <= now + RETRY_PAUSE || !schedule.may_begin(now) {
            return self.known.load_full().unwrap_or(known);
        }
        let half = now + deadline.saturating_duration_since(now) / 2;
        let found = self.discover(Some(&known.topology), half);
        schedule.end(Instant::now());
        match found {
            Ok(topology) => {
                self.topology_is_stale.store(false, Ordering::Relaxed);
                self.keep(topology, Some(&known))
            }
            Err(_) => known,
        }
    }

    fn move_slot(&self, known: &KnownServers, slot: u16, address: Address) -> Arc<KnownServers> {
        let newest = self.known.load_full();
        let known = newest.as_deref().unwrap_or(known);
        let mut topology = known.topology.clone();
        topology.move_slot(slot, address);
        self.keep(topology, Some(known))
    }

    /// Takes over a topology, and keeps the connections to servers that stay.
    fn keep(&self, topology: Topology, before: Option<&KnownServers>) -> Arc<KnownServers> {
        let old = |address: &Address| {
            before.and_then(|known| known.primaries.iter().find(|pool| pool.server.address == *address)).cloned()
        };
        let pool = |address: &Address| old(address).unwrap_or_else(|| self.new_pool(address, Target::Primary));
        let primaries = topology.shards().iter().map(|shard| pool(&shard.primary)).collect();
        let mut others = before.map(|known| known.others.lock().clone()).unwrap_or_default();
        others.retain(|(address, _), _| topology.has_replica(address));
        let known = Arc::new(KnownServers { topology, primaries, others: Mutex::new(others) });
        self.known.store(Some(Arc::clone(&known)));
        known
    }

    /// Closes the idle connections.
    pub(crate) fn clear(&self) {
        if let Some(known) = self.known.load_full() {
            known.primaries.iter().for_each(|pool| pool.clear());
            known.others.lock().values().for_each(|pool| pool.clear());
        }
    }
}

impl KnownServers {
    fn primary(&self, slot: u16) -> Option<&Arc<Pool>> {
        self.topology.shard_index(slot).and_then(|shard| self.primaries.get(shard))
    }
}

/// Waits a little before another attempt. If there is no time for one, fails for the given reason.
fn pause(call: &CallState, failure: Failure) -> Result<(), Failure> {
    let now = Instant::now();
    let Some(until) = call.pause(now) else { return Err(failure) };
    std::thread::sleep(until.saturating_duration_since(now));
    Ok(())
}
