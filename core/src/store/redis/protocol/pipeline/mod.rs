//! One server of the router: the calls that wait for it, the batches in flight to it, and its connection.

mod connecting;
mod over_slots;
mod sending;
mod timeouts;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use self::connecting::ConnectAttempt;
use super::batching::{ALL_SLOTS, SlotQueue, may_cross_slots};
use super::call::Obstacle;
use super::connection::{ConnectionId, PipelinedConnection};
use super::effects::{Action, Effects, Returned};
use super::failure::{self, Failure};
use super::in_flight::{BatchKind, InFlight, ScriptCall};
use super::in_step::{self, MAX_SHORT_REPLY};
use super::pending_call::{Callers, PendingCall, connection_is_gone};
use super::redirect::ReplyMeaning;
use super::server_directory::{Server, ServerDirectory, Target};
use crate::error::Error;
use crate::store::url::Address;

/// What all pipelines of a router have in common.
#[derive(Clone)]
pub(crate) struct PipelineOptions {
    pub(crate) prefix: Arc<str>,
    /// The most requests in one batch.
    pub(crate) max_batch: usize,
    /// Whether the store has several servers.
    pub(crate) several: bool,
    /// Whether its keys have slots.
    pub(crate) has_slots: bool,
    /// Where batches are counted.
    pub(crate) directory: Arc<ServerDirectory>,
}

/// The calls and the connection of one server.
pub(crate) struct ServerPipeline<C: Callers> {
    server: Arc<Server>,
    pub(crate) target: Target,
    index: usize,
    options: PipelineOptions,
    queues: HashMap<u16, SlotQueue<C>, foldhash::fast::FixedState>,
    /// Whether calls of several slots travel together. Only Redis 7 and newer can do that.
    crosses_slots: bool,
    /// The slots whose queues may send.
    ready: VecDeque<u16>,
    /// Calls that another node sent here with ASK.
    asking: VecDeque<PendingCall<C>>,
    /// The calls in all queues.
    waiting: usize,
    in_flight: VecDeque<InFlight<C>>,
    connection: Option<PipelinedConnection>,
    /// Attempts to connect, the newest last.
    attempts: Vec<ConnectAttempt>,
    /// Since when the server has been silent. Until it answers it gets no calls: it would run them after their callers had
    /// given up.
    silent_since: Option<Instant>,
    /// Not later than the next moment at which `handle_timeout` has something to do.
    next_timeout: Option<Instant>,
}

impl<C: Callers> ServerPipeline<C> {
    pub(crate) fn new(server: Server, target: Target, index: usize, options: PipelineOptions) -> Self {
        Self {
            server: Arc::new(server),
            target,
            index,
            // A replica runs only scripts that say that they do not write.
            crosses_slots: options.has_slots && target == Target::Primary,
            options,
            queues: HashMap::default(),
            ready: VecDeque::new(),
            asking: VecDeque::new(),
            waiting: 0,
            in_flight: VecDeque::new(),
            connection: None,
            attempts: Vec::new(),
            silent_since: None,
            next_timeout: None,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.server.address
    }

    /// Why the server cannot be used.
    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        self.server.failure(error, false)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.in_flight.is_empty()
    }

    /// Whether there is neither a connection nor an attempt to open one.
    pub(crate) const fn is_unconnected(&self) -> bool {
        self.connection.is_none() && self.attempts.is_empty()
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout
    }

    fn wake_at(&mut self, at: Instant) {
        self.next_timeout = Some(self.next_timeout.map_or(at, |next| next.min(at)));
    }

    /// Takes a call. One that has waited elsewhere goes first.
    pub(crate) fn push(&mut self, call: PendingCall<C>, now: Instant, effects: &mut Effects<C>) {
        if !call.may_use(self.connection_number()) {
            return effects.completions.fail(call.recipient, &connection_is_gone());
        }
        let first = call.state.was_tried();
        self.enqueue(call, first);
        self.connect_if_needed(now, effects);
    }

    /// Takes a call that another node sent here with ASK.
    pub(crate) fn push_asking(&mut self, call: PendingCall<C>, now: Instant, effects: &mut Effects<C>) {
        if !call.may_use(self.connection_number()) {
            return effects.completions.fail(call.recipient, &connection_is_gone());
        }
        self.wake_at(call.state.attempt_deadline);
        self.waiting += 1;
        self.asking.push_back(call);
        self.connect_if_needed(now, effects);
    }

    fn enqueue(&mut self, call: PendingCall<C>, first: bool) {
        self.wake_at(call.state.attempt_deadline);
        self.waiting += 1;
        let number = if self.crosses_slots && may_cross_slots(&call) { ALL_SLOTS } else { call.slot };
        let queue = self.queues.entry(number).or_default();
        if !queue.listed {
            queue.listed = true;
            self.ready.push_back(number);
        }
        if first { queue.waiting.push_front(call) } else { queue.waiting.push_back(call) }
    }

    /// Puts the calls of a batch back: they were not sent, or certainly did not run.
    fn requeue(&mut self, batch: ScriptCall<C>) {
        let asking = batch.asking;
        for call in batch.into_calls().rev() {
            if asking {
                self.wake_at(call.state.attempt_deadline);
                self.waiting += 1;
                self.asking.push_front(call);
            } else {
                self.enqueue(call, true);
            }
        }
    }

    /// The number of the connection that is open.
    fn connection_number(&self) -> Option<u64> {
        self.connection.as_ref().map(|connection| connection.id.number)
    }

    /// Fails the calls that wait and may not use another connection than the one that is gone.
    fn fail_bound_calls(&mut self, effects: &mut Effects<C>) {
        let queues = self.queues.values_mut().map(|queue| &mut queue.waiting).chain([&mut self.asking]);
        for waiting in queues {
            let (free, bound): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(waiting).into_iter().partition(|call| call.may_use(None));
            *waiting = free;
            for call in bound {
                self.waiting -= 1;
                effects.completions.fail(call.recipient, &connection_is_gone());
            }
        }
    }

    fn take_waiting(&mut self) -> Vec<PendingCall<C>> {
        self.waiting = 0;
        self.ready.clear();
        let mut calls: Vec<PendingCall<C>> = self.asking.drain(..).collect();
        for queue in self.queues.values_mut() {
            queue.listed = false;
            calls.extend(queue.waiting.drain(..));
        }
        calls
    }

    /// One batch less of that queue is in flight: it may send.
    fn note_completed(&mut self, number: u16, calls: usize) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.completed(calls);
            if !queue.listed && !queue.waiting.is_empty() {
                queue.listed = true;
                self.ready.push_back(number);
            }
        }
    }

    fn is_connection(&self, id: ConnectionId) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.id == id)
    }

    /// Where received bytes go; `None` for a connection that is no longer used.
    pub(crate) fn read_buffer(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.connection.as_mut().filter(|connection| connection.id == id).map(|connection| connection.replies.space())
    }

    /// Takes received bytes and gives out the answers in them.
    pub(crate) fn handle_received(&mut self, id: ConnectionId, count: usize, now: Instant, effects: &mut Effects<C>) {
        if let Some(connection) = self.connection.as_mut().filter(|connection| connection.id == id) {
            connection.replies.received(count);
        }
        while let Some(connection) = self.connection.as_mut().filter(|connection| connection.id == id) {
            let max_reply = self.in_flight.front().map_or(MAX_SHORT_REPLY, |sent| sent.max_reply);
            match connection.replies.next(max_reply) {
                Ok(Some(reply)) => self.handle_reply(reply, now, effects),
                Ok(None) => return,
                Err(malformed) => self.lose_connection(&failure::malformed(malformed.0), now, effects),
            }
        }
    }

    /// The connection ended. Calls that were sent may have run; the others go with the next connection.
    pub(crate) fn handle_disconnected(
        &mut self,
        id: ConnectionId,
        error: &io::Error,
        now: Instant,
        effects: &mut Effects<C>,
    ) {
        if self.is_connection(id) {
            self.lose_connection(error, now, effects);
        }
    }

    fn lose_connection(&mut self, error: &io::Error, now: Instant, effects: &mut Effects<C>) {
        self.drop_connection(error, effects);
        self.connect_if_needed(now, effects);
    }

    fn drop_connection(&mut self, error: &io::Error, effects: &mut Effects<C>) {
        let Some(connection) = self.connection.take() else { return };
        effects.actions.push_back(Action::Close(connection.id));
        self.silent_since = None;
        for sent in std::mem::take(&mut self.in_flight).into_iter().rev() {
            let BatchKind::Script(batch) = sent.kind else { continue };
            self.note_completed(batch.queue, batch.members.len());
            if sent.end > connection.sent() && batch.doubtful.is_none() {
                self.requeue(batch);
                continue;
            }
            let failure = self.server.failure(error, true);
            for call in batch.into_calls() {
                self.give_back(call, Obstacle::Failed(failure.clone()), effects);
            }
        }
        self.fail_bound_calls(effects);
    }

    fn handle_reply(&mut self, reply: Value, now: Instant, effects: &mut Effects<C>) {
        let Some(InFlight { kind, begin, end, max_reply }) = self.in_flight.pop_front() else {
            return self.lose_connection(&failure::out_of_step(), now, effects);
        };
        let in_step = match &kind {
            BatchKind::Asking => in_step::is_status(&reply),
            BatchKind::Probe(number) => in_step::is_in_step(&reply, *number),
            BatchKind::Script(batch) if batch.doubtful.is_some() => in_step::is_in_step(&reply, batch.batch.number()),
            BatchKind::Script(batch) => matches!(reply, Value::ServerError(_)) || batch.batch.is_answered_by(&reply),
        };
        if !in_step {
            self.in_flight.push_front(InFlight { kind, begin, end, max_reply });
            return self.lose_connection(&failure::out_of_step(), now, effects);
        }
        match kind {
            BatchKind::Asking => {}
            // A question that was sent after the probe may have been given up meanwhile: no timer waits for its reply.
            BatchKind::Probe(_) if self.in_flight.iter().any(InFlight::is_given_up) => self.probe(),
            BatchKind::Probe(_) => self.silent_since = None,
            BatchKind::Script(batch) => self.handle_script_reply(batch, reply, effects),
        }
    }

    fn handle_script_reply(&mut self, mut batch: ScriptCall<C>, reply: Value, effects: &mut Effects<C>) {
        let (reply, is_certain) = match batch.doubtful.take() {
            Some(error) => (error, true),
            None => (reply, false),
        };
        let meaning = ReplyMeaning::of(&reply, &batch.batch, &self.server, self.options.several);
        let unknown = matches!(meaning, ReplyMeaning::UnknownScript) && !batch.in_full;
        if meaning.is_doubtful(&reply) && !is_certain && batch.is_awaited() {
            batch.doubtful = Some(reply);
            return self.send_question(batch);
        }
        if unknown && batch.is_awaited() && self.silent_since.is_none() {
            return self.send_batch(ScriptCall { in_full: true, ..batch });
        }
        self.note_completed(batch.queue, batch.members.len());
        match meaning {
            ReplyMeaning::UnknownScript if unknown => self.requeue(batch),
            ReplyMeaning::NotAsOne { known } => self.send_apart(batch, known),
            ReplyMeaning::Answer | ReplyMeaning::UnknownScript | ReplyMeaning::OutOfStep => {
                if batch.batch.is_over_slots() {
                    self.send_elsewhere(&mut batch, &reply);
                }
                give_out(batch, reply, self.connection_number(), effects);
            }
            ReplyMeaning::NotServed(obstacle) => {
                let several = batch.members.len() > 1;
                for mut call in batch.into_calls() {
                    call.state.alone |= several;
                    self.give_back(call, obstacle.clone(), effects);
                }
            }
        }
    }

    /// Returns a call to the router, which decides where it goes.
    fn give_back(&self, call: PendingCall<C>, obstacle: Obstacle, effects: &mut Effects<C>) {
        effects.returned.push(Returned { call, obstacle, from: self.server.address.clone() });
    }

    /// What is kept while no call waits. Batches to a silent server stay until it answers or is replaced.
    #[cfg(test)]
    pub(crate) fn check_bounds(&self) {
        use super::batching::{MAX_IDLE_QUEUES, MAX_IN_FLIGHT_PER_SERVER};
        assert_eq!(self.waiting, 0, "a call still waits");
        assert!(self.queues.values().all(|queue| queue.waiting.is_empty()) && self.asking.is_empty());
        assert!(self.queues.len() <= MAX_IDLE_QUEUES && self.attempts.len() <= connecting::MAX_ATTEMPTS);
        assert!(self.in_flight.is_empty() || self.silent_since.is_some(), "a batch is left");
        assert!(self.in_flight.len() <= 2 * MAX_IN_FLIGHT_PER_SERVER);
    }

    /// Fails every call.
    pub(crate) fn close(mut self, error: &Error, effects: &mut Effects<C>) {
        for call in self.take_waiting() {
            effects.completions.fail(call.recipient, error);
        }
        for sent in std::mem::take(&mut self.in_flight) {
            if let BatchKind::Script(batch) = sent.kind {
                batch.into_calls().for_each(|call| effects.completions.fail(call.recipient, error));
            }
        }
        self.retire(effects);
    }
}

fn give_out<C: Callers>(batch: ScriptCall<C>, reply: Value, connection: Option<u64>, effects: &mut Effects<C>) {
    let recipients = batch.members.into_iter().map(super::in_flight::BatchMember::into_recipient);
    match batch.batch.answers(reply) {
        Err(error) => recipients
            .filter_map(|(_, recipient)| recipient)
            .for_each(|recipient| effects.completions.fail(recipient, &error)),
        Ok(answers) => {
            let answers = answers.into_iter();
            let mut answers = answers.map(|answer| answer.map(|answer| answer.over_connection(connection)));
            for (count, recipient) in recipients {
                match recipient {
                    Some(recipient) => effects.completions.answer(recipient, &mut answers, count),
                    None => drop(answers.by_ref().take(count).last()),
                }
            }
        }
    }
}
