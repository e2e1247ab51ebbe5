//! Routes calls to servers. The router knows which server serves which slot, and has a pipeline to each server.
//!
//! A driver reports events and the time, sends the bytes that the router returns, and does the tasks that it hands out.
//! A [`Router`] has these kinds of methods. A driver calls them in this order while any of them changes something:
//!
//! 1. `submit` and `submit_transaction` take calls.
//! 2. `read_buffer` and `handle_received`, `handle_connected`, `handle_connect_failed`, `handle_disconnected` and
//!    `handle_discovered` report events.
//! 3. `poll_timeout` returns the moment when `handle_timeout` is due.
//! 4. `poll_action` returns the next task of the driver: open a connection, close one, find the servers.
//! 5. `transmit` returns the bytes that a connection has to send. `handle_sent` takes the number of sent bytes.
//! 6. `take_completions` returns the finished calls.
//!
//! `close` ends it. Each of the first three kinds works until nothing more follows (`settle`): it routes a call again
//! that a server did not serve, sends the next calls of a transaction once its groups have answered, and routes a
//! parked call once its time has come.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::call::{CallState, NextStep};
use super::discovery::{self, Discovery};
use super::effects::ConnectionId;
use super::effects::{Action, Effects, Returned};
use super::failure::{self, Failure};
use super::pending_call::{Callers, Completed, GroupReply, ParkedCall, PendingCall, Recipient, Resume};
use super::pipeline::ServerPipeline;
use super::schedule::DiscoverySchedule;
use super::server_directory::{PipelineOptions, ServerDirectory, Target};
use super::topology::Topology;
use super::transaction::{CrossSlotTransaction, GroupCall, Progress, Transactions, Underway};
use crate::error::{Error, ErrorKind};
use crate::store::redis::script::Request;
use crate::store::url::Address;

/// From this many pipelines on, the router ends those that no call waits for and that the topology does not name,
/// because servers may redirect calls to ever new addresses.
const MAX_KEPT_PIPELINES: usize = 64;

/// The state machine of the transport.
pub(crate) struct Router<C: Callers> {
    directory: Arc<ServerDirectory>,
    options: PipelineOptions,
    /// True if the store has several servers.
    several: bool,
    topology: Option<Topology>,
    topology_is_stale: bool,
    schedule: DiscoverySchedule,
    pipelines: Vec<Option<ServerPipeline<C>>>,
    /// The index of the primary's pipeline for each shard of the topology, once there is one.
    primaries: Vec<Option<usize>>,
    /// Calls that wait for a topology, or for the end of a pause.
    parked: Vec<ParkedCall<C>>,
    transactions: Transactions<C>,
    effects: Effects<C>,
}

impl<C: Callers> Router<C> {
    /// `max_batch` is the most requests in one batch.
    pub(crate) fn new(directory: Arc<ServerDirectory>, prefix: Arc<str>, max_batch: usize) -> Self {
        let mut router = Self {
            options: PipelineOptions { prefix, max_batch, directory: Arc::clone(&directory) },
            several: directory.has_several_servers(),
            topology: None,
            topology_is_stale: false,
            schedule: DiscoverySchedule::default(),
            pipelines: Vec::new(),
            primaries: Vec::new(),
            parked: Vec::new(),
            transactions: Transactions::default(),
            effects: Effects::default(),
            directory,
        };
        if let Some(topology) = discovery::single(&router.directory) {
            router.adopt(topology);
        }
        router
    }

    /// A new router for the same servers, which knows nothing yet.
    pub(crate) fn renewed(&self) -> Self {
        Self::new(Arc::clone(&self.directory), Arc::clone(&self.options.prefix), self.options.max_batch)
    }

    pub(crate) fn submit(&mut self, call: PendingCall<C>, now: Instant) {
        self.route(call, now);
        self.settle(now);
    }

    /// Reports an event to the pipeline of a connection, if it still exists, and settles the consequences.
    #[inline]
    fn tell<R: Default>(
        &mut self,
        id: ConnectionId,
        now: Instant,
        tell: impl FnOnce(&mut ServerPipeline<C>, &mut Effects<C>) -> R,
    ) -> R {
        let pipeline = self.pipelines.get_mut(id.pipeline).and_then(Option::as_mut);
        let result = pipeline.map(|pipeline| tell(pipeline, &mut self.effects)).unwrap_or_default();
        self.settle(now);
        result
    }

    /// A connection is open and its server greeted. If it returns false, the driver closes the connection.
    pub(crate) fn handle_connected(&mut self, id: ConnectionId, now: Instant) -> bool {
        self.tell(id, now, |pipeline, effects| pipeline.handle_connected(id, effects))
    }

    pub(crate) fn handle_connect_failed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        self.tell(id, now, |pipeline, effects| pipeline.handle_connect_failed(id, failure, now, effects));
    }

    /// The failure of a connection that opened but cannot be used.
    pub(crate) fn failure(&self, id: ConnectionId, error: &io::Error) -> Failure {
        let shown = self.directory.shown();
        let pipeline = self.pipelines.get(id.pipeline).and_then(Option::as_ref);
        pipeline.map_or_else(
            || Failure::of_io(error, false, shown, self.directory.timeout()),
            |pipeline| pipeline.failure(error),
        )
    }

    /// The buffer for received bytes, or `None` if the router no longer uses the connection.
    #[inline]
    pub(crate) fn read_buffer(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.pipelines.get_mut(id.pipeline)?.as_mut()?.read_buffer(id)
    }

    /// The driver has put `count` bytes into `read_buffer`.
    #[inline]
    pub(crate) fn handle_received(&mut self, id: ConnectionId, count: usize, now: Instant) {
        self.tell(id, now, |pipeline, effects| pipeline.handle_received(id, count, now, effects));
    }

    pub(crate) fn handle_disconnected(&mut self, id: ConnectionId, error: &io::Error, now: Instant) {
        self.tell(id, now, |pipeline, effects| pipeline.handle_disconnected(id, error, now, effects));
    }

    /// A `Discover` has ended with this result.
    pub(crate) fn handle_discovered(&mut self, result: Result<Topology, Failure>, now: Instant) {
        self.schedule.end(now);
        match result {
            Ok(topology) => {
                self.topology_is_stale = false;
                self.adopt(topology);
            }
            // Without a topology no call can be sent. After a timeout, those with time left wait for the next one.
            Err(failure) if self.topology.is_none() && failure.error.kind() != ErrorKind::StoreTimeout => {
                for parked in std::mem::take(&mut self.parked) {
                    self.effects.completions.fail(parked.call.recipient, &failure.error);
                }
            }
            Err(_) => {}
        }
        self.settle(now);
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for pipeline in self.pipelines.iter_mut().flatten() {
            pipeline.handle_timeout(now, &mut self.effects);
        }
        self.topology_is_stale |= std::mem::take(&mut self.effects.server_was_silent);
        self.settle(now);
    }

    /// When `handle_timeout` is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let pipelines = self.pipelines.iter().flatten().filter_map(ServerPipeline::poll_timeout);
        let parked = self.parked.iter().map(ParkedCall::poll_timeout);
        let discovery = if self.parked.is_empty() { None } else { self.schedule.next() };
        let discovery = discovery.filter(|_| self.topology_is_stale && self.several);
        pipelines.chain(parked).chain(discovery).min()
    }

    /// Forms the batches that this connection may send now, and returns the bytes to send.
    #[inline]
    pub(crate) fn transmit(&mut self, id: ConnectionId, now: Instant) -> &[u8] {
        match self.pipelines.get_mut(id.pipeline) {
            Some(Some(pipeline)) => pipeline.transmit(id, now),
            _ => &[],
        }
    }

    /// The bytes that this connection has to send, without new batches.
    pub(crate) fn unsent(&self, id: ConnectionId) -> &[u8] {
        self.pipelines.get(id.pipeline).and_then(Option::as_ref).map_or(&[], |pipeline| pipeline.unsent(id))
    }

    /// The driver has sent `count` bytes of `transmit`.
    #[inline]
    pub(crate) fn handle_sent(&mut self, id: ConnectionId, count: usize) {
        if let Some(Some(pipeline)) = self.pipelines.get_mut(id.pipeline) {
            pipeline.handle_sent(id, count);
        }
    }

    /// The next task of the driver.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.effects.actions.pop_front()
    }

    /// True if the driver has tasks to do or completions to give out.
    pub(crate) fn has_output(&self) -> bool {
        !self.effects.actions.is_empty() || !self.effects.completions.callers.is_empty()
    }

    /// Moves the finished calls into an empty list.
    pub(crate) fn take_completions(&mut self, list: &mut Vec<Completed<C>>) {
        std::mem::swap(&mut self.effects.completions.callers, list);
    }

    /// True if no call waits for a server.
    pub(crate) fn is_idle(&self) -> bool {
        self.parked.is_empty() && self.pipelines.iter().flatten().all(ServerPipeline::is_idle)
    }

    /// Fails every call and closes every connection.
    pub(crate) fn close(&mut self, error: &Error) {
        for pipeline in std::mem::take(&mut self.pipelines).into_iter().flatten() {
            pipeline.close(error, &mut self.effects);
        }
        for parked in std::mem::take(&mut self.parked) {
            self.effects.completions.fail(parked.call.recipient, error);
        }
        self.effects.returned.drain(..).for_each(drop);
        self.primaries.iter_mut().for_each(|primary| *primary = None);
        self.transactions.close(error, &mut self.effects.completions);
    }

    /// Works until nothing more follows.
    fn settle(&mut self, now: Instant) {
        loop {
            self.route_returned(now);
            self.advance_transactions(now);
            self.discover_if_needed(now);
            let resumed = self.resume_parked(now);
            if !resumed && self.effects.returned.is_empty() && self.effects.completions.groups.is_empty() {
                return;
            }
        }
    }

    fn discover_if_needed(&mut self, now: Instant) {
        let missing = self.topology.is_none() && !self.parked.is_empty() && !self.schedule.is_running();
        let renews = self.topology_is_stale && self.several && self.schedule.may_begin(now);
        if missing || renews {
            self.schedule.begin();
            let deadline = now + DiscoverySchedule::duration(self.directory.timeout());
            let discovery = Discovery::new(&self.directory, self.topology.as_ref(), now, deadline);
            self.effects.actions.push_back(Action::Discover(Box::new(discovery)));
        }
    }

    fn adopt(&mut self, topology: Topology) {
        self.primaries = vec![None; topology.shards().len()];
        self.topology = Some(topology);
        self.retire_unnamed();
    }

    /// Ends the pipelines to servers that the topology no longer names, once no call waits for them.
    fn retire_unnamed(&mut self) {
        let Some(topology) = &self.topology else { return };
        let is_named = |pipeline: &ServerPipeline<C>| {
            topology.shards().iter().any(|shard| match pipeline.target {
                Target::Primary => shard.primary == *pipeline.address(),
                Target::Replica => shard.replicas.contains(pipeline.address()),
            })
        };
        for slot in &mut self.pipelines {
            if slot.as_ref().is_some_and(|pipeline| pipeline.is_idle() && !is_named(pipeline))
                && let Some(pipeline) = slot.take()
            {
                pipeline.retire(&mut self.effects);
            }
        }
    }

    fn index_of(&self, address: &Address, target: Target) -> Option<usize> {
        let is = |pipeline: &ServerPipeline<C>| pipeline.target == target && pipeline.address() == address;
        self.pipelines.iter().position(|pipeline| pipeline.as_ref().is_some_and(is))
    }

    /// The index of the pipeline to a server. Makes the pipeline if there is none.
    fn pipeline(&mut self, address: &Address, target: Target) -> usize {
        if let Some(index) = self.index_of(address, target) {
            return index;
        }
        if self.pipelines.len() >= MAX_KEPT_PIPELINES && !self.pipelines.iter().any(Option::is_none) {
            self.retire_unnamed();
        }
        let index = self.pipelines.iter().position(Option::is_none).unwrap_or_else(|| {
            self.pipelines.push(None);
            self.pipelines.len() - 1
        });
        let server = self.directory.server(address.clone(), target);
        self.pipelines[index] = Some(ServerPipeline::new(server, target, index, self.options.clone()));
        index
    }

    /// Gives a call to the pipeline of its slot.
    fn route(&mut self, call: PendingCall<C>, now: Instant) {
        let Some(topology) = &self.topology else {
            return self.await_discovery(call);
        };
        let Some(shard) = topology.shard_index(call.slot) else {
            self.topology_is_stale = true;
            let error = failure::uncovered(self.directory.shown(), call.slot);
            return self.pause(call, error, now);
        };
        if call.state.prefers_replica() {
            self.topology_is_stale |= self.schedule.replicas_are_old(now);
            if let Some(address) = topology.replica(call.slot).cloned() {
                let pipeline = self.pipeline(&address, Target::Replica);
                return self.push(pipeline, call, Target::Replica, false, now);
            }
        }
        let pipeline = match self.primaries[shard] {
            Some(pipeline) => pipeline,
            None => {
                let address = topology.shards()[shard].primary.clone();
                let pipeline = self.pipeline(&address, Target::Primary);
                self.primaries[shard] = Some(pipeline);
                pipeline
            }
        };
        if self.is_doubtful(pipeline, now) {
            self.topology_is_stale = true;
            return self.await_discovery(call);
        }
        self.push(pipeline, call, Target::Primary, false, now);
    }

    /// Lets a call wait for a topology.
    fn await_discovery(&mut self, call: PendingCall<C>) {
        let error = failure::timed_out(self.directory.shown(), self.directory.timeout());
        self.parked.push(ParkedCall { call, resume: Resume::AfterDiscovery { unreachable: None }, error });
    }

    /// True if the sentinels must name the primary again before a new connection to it. A replaced primary may be back,
    /// and empty, before it learns that it is a replica now.
    fn is_doubtful(&self, pipeline: usize, now: Instant) -> bool {
        self.directory.has_sentinels()
            && !self.schedule.is_settled(now)
            && self.pipelines[pipeline].as_ref().is_some_and(ServerPipeline::is_unconnected)
    }

    fn push(&mut self, pipeline: usize, mut call: PendingCall<C>, target: Target, asking: bool, now: Instant) {
        call.state.begin_attempt(target, now);
        if let Some(pipeline) = &mut self.pipelines[pipeline] {
            pipeline.push(call, asking, now, &mut self.effects);
        }
    }

    /// Decides what to do with the calls that servers did not serve.
    fn route_returned(&mut self, now: Instant) {
        // From the last to the first, each to the head of its queue, so they keep their order.
        for Returned { mut call, obstacle, from } in std::mem::take(&mut self.effects.returned).into_iter().rev() {
            let target = call.state.target;
            let after = call.state.after(obstacle, self.several, self.directory.shown());
            self.topology_is_stale |= after.topology_is_stale;
            if let Some((slot, address)) = after.moved {
                self.move_slot(slot, address);
            }
            if after.reconnect {
                let index = self.index_of(&from, target);
                if let Some(pipeline) = index.and_then(|index| self.pipelines[index].as_mut()) {
                    pipeline.reconnect(now, &mut self.effects);
                }
            }
            match after.next {
                NextStep::Route => self.route(call, now),
                NextStep::Ask(address) => {
                    let pipeline = self.pipeline(&address, Target::Primary);
                    self.push(pipeline, call, Target::Primary, true, now);
                }
                NextStep::RouteAfterPause(error) => self.pause(call, error, now),
                NextStep::RouteAfterDiscovery(Failure { error, .. }) => {
                    let resume = Resume::AfterDiscovery { unreachable: Some(from) };
                    self.parked.push(ParkedCall { call, resume, error });
                }
                NextStep::Fail(failure) => self.effects.completions.fail(call.recipient, &failure.error),
            }
        }
    }

    fn move_slot(&mut self, slot: u16, address: Address) {
        if let Some(topology) = &mut self.topology {
            topology.move_slot(slot, address);
            self.primaries.resize(topology.shards().len(), None);
        }
    }

    /// Parks a call for a short pause, or fails it if there is no time for one.
    fn pause(&mut self, call: PendingCall<C>, error: Error, now: Instant) {
        match call.state.pause(now) {
            Some(until) => self.parked.push(ParkedCall { call, resume: Resume::At(until), error }),
            None => self.effects.completions.fail(call.recipient, &error),
        }
    }

    /// Routes the parked calls that are due. Returns true if there were any.
    fn resume_parked(&mut self, now: Instant) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        let settled = self.topology.is_some() && self.schedule.is_settled(now);
        let mut resumed = false;
        for parked in std::mem::take(&mut self.parked) {
            let ParkedCall { call, resume, error } = parked;
            if call.state.deadline <= now {
                self.effects.completions.fail(call.recipient, &error);
                continue;
            }
            match resume {
                Resume::At(at) if at > now || self.topology.is_none() => {
                    self.parked.push(ParkedCall { call, resume, error });
                }
                Resume::AfterDiscovery { .. } if !settled => self.parked.push(ParkedCall { call, resume, error }),
                Resume::AfterDiscovery { unreachable: Some(address) }
                    if self.topology.as_ref().and_then(|topology| topology.primary(call.slot)) == Some(&address) =>
                {
                    self.effects.completions.fail(call.recipient, &error);
                }
                _ => {
                    resumed = true;
                    self.route(call, now);
                }
            }
        }
        resumed
    }

    /// Takes requests of several slots that stand or fall together. `slots` has the slot of each request.
    pub(crate) fn submit_transaction(
        &mut self,
        requests: Vec<Request>,
        slots: &[u16],
        time: Option<u64>,
        deadline: Instant,
        caller: C::All,
        now: Instant,
    ) {
        let mut transaction = CrossSlotTransaction::new(requests, slots, deadline, self.directory.timeout());
        let calls = transaction.begin();
        let place = self.transactions.insert(Underway { transaction, time, caller: Some(caller) });
        self.send_groups(place, time, calls, now);
        self.settle(now);
    }

    fn send_groups(&mut self, transaction: usize, time: Option<u64>, calls: Vec<GroupCall>, now: Instant) {
        for GroupCall { group, slot, requests, grouping, deadline } in calls {
            let state = CallState::by_itself(deadline);
            let recipient = Recipient::Group { transaction, group };
            let call = PendingCall { requests: requests.into(), grouping, time, slot, state, recipient };
            self.route(call, now);
        }
    }

    /// Continues the transactions with groups that have answered.
    fn advance_transactions(&mut self, now: Instant) {
        for GroupReply { transaction: place, group, answers } in std::mem::take(&mut self.effects.completions.groups) {
            let Some(Some(underway)) = self.transactions.places.get_mut(place) else { continue };
            let Progress { result, calls } = underway.transaction.handle_reply(group, answers, now);
            let (time, finished) = (underway.time, underway.transaction.is_finished());
            let caller = result.and_then(|result| Some((underway.caller.take()?, result)));
            if finished {
                self.transactions.places[place] = None;
            }
            if let Some((caller, result)) = caller {
                self.effects.completions.callers.push(Completed::All(caller, result));
            }
            self.send_groups(place, time, calls, now);
        }
    }

    /// Checks that little is kept when no call waits: see the invariants of ADR 11.
    #[cfg(test)]
    pub(crate) fn check_bounds(&self) {
        assert!(self.effects.returned.is_empty() && self.effects.completions.groups.is_empty());
        assert!(self.transactions.is_empty(), "a transaction is left");
        assert!(self.parked.is_empty(), "a call is still parked");
        self.pipelines.iter().flatten().for_each(ServerPipeline::check_bounds);
    }
}
