//! Where a call goes: at first, and after a server did not serve it.

use std::time::Instant;

use super::{Callers, PendingCall, Router, ServerPipeline, Target};
use crate::error::Error;
use crate::store::redis::protocol::call::NextStep;
use crate::store::redis::protocol::effects::Returned;
use crate::store::redis::protocol::failure::{self, Failure};
use crate::store::url::Address;

/// A call that no server has now.
pub(super) struct ParkedCall<C: Callers> {
    pub(super) call: PendingCall<C>,
    resume: Resume,
    /// What its caller gets when there is no time left.
    error: Error,
}

enum Resume {
    At(Instant),
    /// After the next discovery. When that names the same primary as before, there is no other server, and the call fails.
    AfterDiscovery {
        unreachable: Option<Address>,
    },
}

impl<C: Callers> ParkedCall<C> {
    pub(super) fn poll_timeout(&self) -> Instant {
        match self.resume {
            Resume::At(at) => at.min(self.call.state.deadline),
            Resume::AfterDiscovery { .. } => self.call.state.deadline,
        }
    }
}

impl<C: Callers> Router<C> {
    /// Gives a call to the pipeline of its slot.
    pub(super) fn route(&mut self, call: PendingCall<C>, now: Instant) {
        let Some(topology) = &self.topology else {
            let error = failure::timed_out(self.directory.shown(), self.directory.timeout());
            return self.parked.push(ParkedCall { call, resume: Resume::AfterDiscovery { unreachable: None }, error });
        };
        let Some(shard) = topology.shard_index(call.slot) else {
            self.topology_is_stale = true;
            let error = failure::uncovered(self.directory.shown(), call.slot);
            return self.pause(call, error, now);
        };
        if call.state.prefers_replica() {
            self.topology_is_stale |= self.schedule.replicas_are_old(now);
            let replicas = &topology.shards()[shard].replicas;
            if !replicas.is_empty() {
                let address = replicas[usize::from(call.slot) % replicas.len()].clone();
                let pipeline = self.pipeline(&address, Target::Replica);
                return self.push(pipeline, call, Target::Replica, now);
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
            let error = failure::timed_out(self.directory.shown(), self.directory.timeout());
            return self.parked.push(ParkedCall { call, resume: Resume::AfterDiscovery { unreachable: None }, error });
        }
        self.push(pipeline, call, Target::Primary, now);
    }

    /// A primary that was replaced may be back, and empty, before it is told that it is a replica now. So the sentinels name the
    /// primary before each new connection to it.
    fn is_doubtful(&self, pipeline: usize, now: Instant) -> bool {
        self.directory.has_sentinels()
            && !self.schedule.is_settled(now)
            && self.pipelines[pipeline].as_ref().is_some_and(ServerPipeline::is_unconnected)
    }

    fn push(&mut self, pipeline: usize, mut call: PendingCall<C>, target: Target, now: Instant) {
        call.state.begin_attempt(target, now);
        if let Some(pipeline) = &mut self.pipelines[pipeline] {
            pipeline.push(call, now, &mut self.effects);
        }
    }

    /// Decides about the calls that servers did not serve.
    pub(super) fn route_returned(&mut self, now: Instant) {
        // From the last to the first, each to the head of its queue: so their order stays.
        for Returned { mut call, obstacle, from } in std::mem::take(&mut self.effects.returned).into_iter().rev() {
            let target = call.state.target;
            let after = call.state.after(obstacle, self.options.several, self.directory.shown());
            self.topology_is_stale |= after.topology_is_stale;
            if let Some((slot, address)) = after.moved {
                self.move_slot(slot, address);
            }
            if after.reconnect {
                self.reconnect(&from, target, now);
            }
            match after.next {
                NextStep::Route => self.route(call, now),
                NextStep::Ask(address) => {
                    let pipeline = self.pipeline(&address, Target::Primary);
                    call.state.begin_attempt(Target::Primary, now);
                    if let Some(pipeline) = &mut self.pipelines[pipeline] {
                        pipeline.push_asking(call, now, &mut self.effects);
                    }
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

    fn reconnect(&mut self, address: &Address, target: Target, now: Instant) {
        let is = |pipeline: &&mut ServerPipeline<C>| pipeline.target == target && pipeline.address() == address;
        if let Some(pipeline) = self.pipelines.iter_mut().flatten().find(is) {
            pipeline.reconnect(now, &mut self.effects);
        }
    }

    /// Lets a call wait a little, if it has the time.
    fn pause(&mut self, call: PendingCall<C>, error: Error, now: Instant) {
        match call.state.pause(now) {
            Some(until) => self.parked.push(ParkedCall { call, resume: Resume::At(until), error }),
            None => self.effects.completions.fail(call.recipient, &error),
        }
    }

    /// Sends the parked calls on whose time has come; says whether there were any.
    pub(super) fn resume_parked(&mut self, now: Instant) -> bool {
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
                    if self.primary_of(call.slot) == Some(&address) =>
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

    fn primary_of(&self, slot: u16) -> Option<&Address> {
        let topology = self.topology.as_ref()?;
        topology.shard_index(slot).map(|shard| &topology.shards()[shard].primary)
    }
}
