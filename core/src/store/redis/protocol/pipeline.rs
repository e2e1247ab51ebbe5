//! One server of the router: the calls that wait for it, the batches in flight to it, and its connection.
//!
//! A [`ServerPipeline`] has these kinds of methods. Each may add to the [`Effects`]: a connection to open or to close,
//! a call that this server did not serve, a finished call.
//!
//! 1. `push` takes a call, and asks for a connection if there is none.
//! 2. `handle_connected` and `handle_connect_failed` report the result. Another attempt joins a silent one, and the
//!    first that succeeds is used.
//! 3. `transmit` forms batches and returns the bytes to send. `handle_sent` takes the number of bytes that were sent.
//! 4. `read_buffer` takes bytes of the server. `handle_received` decodes the replies and decides what each means.
//! 5. `poll_timeout` returns when `handle_timeout` is due. It gives up late calls, and sends a PING to a silent server.
//! 6. `handle_disconnected` sorts the calls of a lost connection. Sent calls may have run. The others wait again.
//! 7. `close` and `retire` end it.
//!
//! If a server does not serve a call over several slots, or only a part of it, each call that did not run goes to it
//! again, alone and as a call of its own slot. The reply then shows where the call belongs.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::call::Obstacle;
use super::call_queues::CallQueues;
use super::connection::PipelinedConnection;
use super::effects::{Action, ConnectionId, Effects, Returned};
use super::failure::{self, Failure};
use super::in_flight::{BatchMember, Command, ScriptCall};
use super::pending_call::{Callers, PendingCall, connection_is_gone};
use super::redirect::ReplyMeaning;
use super::schedule::{DiscoverySchedule, NextMoment, ScriptPause};
use super::server_directory::{PipelineOptions, Server, Target};
use crate::error::{Error, ErrorKind};
use crate::store::redis::script::{Batch, Requests};
use crate::store::url::Address;

/// If an attempt to connect has not succeeded within this time, another one joins it.
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);
/// The most attempts at the same time: as many as begin while the first one lasts.
const MAX_ATTEMPTS: usize = 4;
/// The most batches of one server in flight at once, for example when each call travels alone.
const MAX_IN_FLIGHT: usize = 1_024;
/// If so many keys of a call are refused, all but the declared one, the server or its proxy serves only declared keys.
const NEVER_SERVED: usize = 8;

/// The calls and the connection of one server.
pub(crate) struct ServerPipeline<C: Callers> {
    server: Arc<Server>,
    pub(crate) target: Target,
    index: usize,
    options: PipelineOptions,
    queues: CallQueues<C>,
    connection: Option<PipelinedConnection<C>>,
    /// Attempts to connect, and when each began. The newest comes last.
    attempts: Vec<(ConnectionId, Instant)>,
    /// The moment since when the server has been silent. Until it answers it gets no calls, because it would run them
    /// after their callers have given up.
    silent_since: Option<Instant>,
    script_pause: ScriptPause,
    /// When `handle_timeout` has something to do.
    next_moment: NextMoment,
}

impl<C: Callers> ServerPipeline<C> {
    pub(crate) fn new(server: Server, target: Target, index: usize, options: PipelineOptions) -> Self {
        Self {
            server: Arc::new(server),
            target,
            index,
            // A replica runs only scripts that declare that they do not write.
            queues: CallQueues::new(options.directory.has_slots() && target == Target::Primary),
            options,
            connection: None,
            attempts: Vec::new(),
            silent_since: None,
            script_pause: ScriptPause::default(),
            next_moment: NextMoment::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.server.address
    }

    /// The failure of a connection to this server.
    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        self.server.failure(error, false)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.in_flight() == 0
    }

    /// True if there is neither a connection nor an attempt to open one.
    pub(crate) const fn is_unconnected(&self) -> bool {
        self.connection.is_none() && self.attempts.is_empty()
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_moment.next()
    }

    /// Takes a call. `asking` is true if another node sent it here with ASK. A call that was tried before goes first.
    pub(crate) fn push(&mut self, call: PendingCall<C>, asking: bool, now: Instant, effects: &mut Effects<C>) {
        if !call.may_use(self.connection_number()) {
            return effects.completions.fail(call.recipient, &connection_is_gone());
        }
        if asking {
            self.queues.push_asking(call, false, &mut self.next_moment);
        } else {
            let first = call.state.was_tried();
            self.queues.push(call, first, &mut self.next_moment);
        }
        self.connect_if_needed(now, effects);
    }

    /// Puts the calls of a batch back: they were not sent, or certainly did not run.
    fn requeue(&mut self, batch: ScriptCall<C>) {
        let push = if batch.asking { CallQueues::push_asking } else { CallQueues::push };
        batch.into_calls().rev().for_each(|call| push(&mut self.queues, call, true, &mut self.next_moment));
    }

    /// The number of the connection that is open.
    fn connection_number(&self) -> Option<u64> {
        self.connection.as_ref().map(|connection| connection.id.number)
    }

    fn connect_if_needed(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.is_unconnected() && !self.queues.is_empty() {
            self.connect(now, effects);
        } else if self.silent_since.is_some() {
            self.connect_again_if_silent(now, effects);
        }
    }

    /// TCP resends lost packets at growing intervals, so a second connection is often faster. None is opened while no
    /// call waits.
    fn connect_again_if_silent(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.queues.is_empty() {
            return;
        }
        let again = match (self.attempts.last(), self.silent_since) {
            (Some((_, began)), _) if self.attempts.len() < MAX_ATTEMPTS => *began + NEXT_ATTEMPT,
            (None, Some(since)) => since + NEXT_ATTEMPT,
            _ => return,
        };
        if now < again { self.next_moment.set(again) } else { self.connect(now, effects) }
    }

    /// An attempt lasts long enough for a lost packet and a slow handshake, even if a call has less time.
    fn connect(&mut self, now: Instant, effects: &mut Effects<C>) {
        let id = ConnectionId { pipeline: self.index, number: effects.next_number() };
        let deadline = now + DiscoverySchedule::duration(self.server.timeout);
        effects.actions.push_back(Action::Connect { id, server: Arc::clone(&self.server), deadline });
        self.attempts.push((id, now));
        self.next_moment.set(now + NEXT_ATTEMPT);
    }

    /// A connection is open. Returns false if the pipeline does not use it: then the driver closes it.
    pub(crate) fn handle_connected(&mut self, id: ConnectionId, effects: &mut Effects<C>) -> bool {
        if !self.attempts.iter().any(|(attempt, _)| *attempt == id) {
            return false;
        }
        let others = self.attempts.drain(..).filter(|(attempt, _)| *attempt != id);
        effects.actions.extend(others.map(|(attempt, _)| Action::Close(attempt)));
        // An older connection has been silent for long.
        self.drop_connection(&failure::closed_by_server(), effects);
        self.connection = Some(PipelinedConnection::new(id));
        self.queues.list_all();
        true
    }

    pub(crate) fn handle_connect_failed(
        &mut self,
        id: ConnectionId,
        failure: Failure,
        now: Instant,
        effects: &mut Effects<C>,
    ) {
        let Some(index) = self.attempts.iter().position(|(attempt, _)| *attempt == id) else { return };
        self.attempts.remove(index);
        match (&self.connection, failure.error.kind()) {
            // Waiting calls have their own deadlines. The next attempt begins at once.
            (_, ErrorKind::StoreTimeout) => self.connect_if_needed(now, effects),
            // The old connection may still answer. A server that refuses is not asked again at once.
            (Some(_), _) => {
                self.silent_since = self.silent_since.map(|_| now);
                self.connect_if_needed(now, effects);
            }
            (None, _) => {
                for call in self.queues.take_all() {
                    self.give_back(call, Obstacle::Failed(failure.clone()), effects);
                }
            }
        }
    }

    /// Opens a new connection before the next call, if none is in flight: the server may have another role now.
    pub(crate) fn reconnect(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.connection.is_some() && self.in_flight() == 0 {
            self.lose_connection(&failure::closed_by_server(), now, effects);
        }
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut PipelinedConnection<C>> {
        self.connection.as_mut().filter(|connection| connection.id == id)
    }

    /// Forms the batches that may be sent now, and returns the bytes to send.
    pub(crate) fn transmit(&mut self, id: ConnectionId, now: Instant) -> &[u8] {
        let awaits_script = self.script_pause.ends(now).is_some();
        if self.connection.is_some() && self.silent_since.is_none() && !awaits_script && !self.queues.is_empty() {
            self.form_batches(now);
        }
        self.unsent(id)
    }

    /// The bytes to send, without new batches.
    pub(crate) fn unsent(&self, id: ConnectionId) -> &[u8] {
        self.connection.as_ref().filter(|connection| connection.id == id).map_or(&[], PipelinedConnection::transmit)
    }

    /// The driver has sent `count` bytes of `transmit`.
    pub(crate) fn handle_sent(&mut self, id: ConnectionId, count: usize) {
        if let Some(connection) = self.connection_mut(id) {
            connection.handle_sent(count);
        }
    }

    /// The number of commands that were sent and not answered yet.
    fn in_flight(&self) -> usize {
        self.connection.as_ref().map_or(0, |connection| connection.in_flight.len())
    }

    fn form_batches(&mut self, now: Instant) {
        while self.in_flight() < MAX_IN_FLIGHT
            && let Some(call) = self.queues.pop_asking()
        {
            let (queue, time, grouping) = (call.slot, call.time, call.grouping);
            let (member, requests) = BatchMember::new(call);
            self.options.directory.batch_formed(requests.len());
            let script = Batch::new(Arc::clone(&self.options.prefix), time, grouping, requests);
            let members = vec![member];
            self.send_batch(ScriptCall { script, members, queue, in_full: false, asking: true, doubtful: None });
        }
        while self.in_flight() < MAX_IN_FLIGHT
            && let Some(queue) = self.queues.pop_ready()
        {
            if let Some(batch) = self.form_batch(queue, now) {
                self.send_batch(batch);
            }
        }
        self.queues.forget_idle();
    }

    /// The oldest calls of a queue that may travel together, if a batch may be sent now.
    fn form_batch(&mut self, queue: u16, now: Instant) -> Option<ScriptCall<C>> {
        let (mut members, mut requests) = (Vec::new(), Requests::new());
        let mut first = None;
        let (mut over_slots, mut uncounted) = (false, 0);
        let take = |mut call: PendingCall<C>| {
            // A batch that waited for the script is formed again.
            uncounted += if call.state.is_counted { 0 } else { call.requests.len() };
            call.state.is_counted = true;
            let (slot, ..) = *first.get_or_insert((call.slot, call.time, call.grouping));
            over_slots |= call.slot != slot;
            let (member, more) = BatchMember::new(call);
            members.push(member);
            if requests.is_empty() { requests = more } else { requests.extend(more) }
        };
        let (max_batch, timeout) = (self.options.max_batch, self.server.timeout);
        self.queues.take_batch(queue, max_batch, timeout, now, &mut self.next_moment, take);
        let (_, time, grouping) = first?;
        if uncounted > 0 {
            self.options.directory.batch_formed(uncounted);
        }
        let script = Batch::new(Arc::clone(&self.options.prefix), time, grouping, requests);
        let script = if over_slots { script.over_slots() } else { script };
        Some(ScriptCall { script, members, queue, in_full: false, asking: false, doubtful: None })
    }

    /// Writes a batch. Its queue has counted it already.
    fn send_batch(&mut self, batch: ScriptCall<C>) {
        match &mut self.connection {
            Some(connection) => connection.send(batch),
            None => {
                self.queues.note_completed(batch.queue, batch.members.len());
                self.requeue(batch);
            }
        }
    }

    /// The buffer for received bytes, or `None` for a connection that is no longer used.
    pub(crate) fn read_buffer(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.connection_mut(id).map(|connection| connection.replies.space())
    }

    /// Takes received bytes and gives out the answers in them.
    pub(crate) fn handle_received(&mut self, id: ConnectionId, count: usize, now: Instant, effects: &mut Effects<C>) {
        if let Some(connection) = self.connection_mut(id) {
            connection.replies.received(count);
        }
        while let Some(connection) = self.connection_mut(id) {
            match connection.next_reply() {
                Ok(Some((command, reply))) => self.handle_reply(command, reply, now, effects),
                Ok(None) => return,
                Err(error) => self.lose_connection(&error, now, effects),
            }
        }
    }

    fn handle_reply(&mut self, command: Command<C>, reply: Value, now: Instant, effects: &mut Effects<C>) {
        match command {
            Command::Asking => {}
            // The caller of a question that was sent after the probe may have given up. No timer waits for its reply.
            Command::Probe(_) if self.connection.as_ref().is_some_and(PipelinedConnection::has_given_up) => {
                self.probe()
            }
            Command::Probe(_) => self.silent_since = None,
            Command::Script(batch) => self.handle_script_reply(batch, reply, now, effects),
        }
    }

    fn handle_script_reply(&mut self, mut batch: ScriptCall<C>, reply: Value, now: Instant, effects: &mut Effects<C>) {
        let (reply, is_certain) = match batch.doubtful.take() {
            Some(error) => (error, true),
            None => (reply, false),
        };
        let meaning =
            ReplyMeaning::of(&reply, &batch.script, &self.server, self.options.directory.has_several_servers());
        let unknown = matches!(meaning, ReplyMeaning::UnknownScript) && !batch.in_full;
        let again = unknown || batch.script.go_by(meaning.other_time());
        if meaning.is_doubtful(&reply) && !is_certain && batch.is_awaited() {
            batch.doubtful = Some(reply);
            if let Some(connection) = &mut self.connection {
                connection.send_question(batch);
            }
            return;
        }
        let awaits_script = unknown && self.script_pause.begin(now, || self.options.directory.script_pause());
        if again && !awaits_script && batch.is_awaited() && self.silent_since.is_none() {
            return self.send_batch(ScriptCall { in_full: batch.in_full || unknown, ..batch });
        }
        match self.script_pause.ends(now) {
            Some(ends) if unknown => self.next_moment.set(ends),
            _ => self.script_pause = ScriptPause::default(),
        }
        self.queues.note_completed(batch.queue, batch.members.len());
        match meaning {
            _ if again => self.requeue(batch),
            ReplyMeaning::NotAsOne { known } => {
                if !known {
                    self.queues.keep_slots_apart(&mut self.next_moment);
                }
                self.send_alone(batch.into_calls());
            }
            ReplyMeaning::NotServed(obstacle) => {
                let several = batch.members.len() > 1;
                for mut call in batch.into_calls() {
                    call.state.alone |= several;
                    self.give_back(call, obstacle.clone(), effects);
                }
            }
            _ => {
                if batch.script.is_over_slots() {
                    self.send_elsewhere(&mut batch, &reply);
                }
                batch.give_out(reply, self.connection_number(), effects);
            }
        }
    }

    /// Takes the calls for keys that are not on this server out of an answered batch, and queues them again.
    fn send_elsewhere(&mut self, batch: &mut ScriptCall<C>, reply: &Value) {
        let not_local = batch.script.not_local(reply);
        if not_local.len() >= NEVER_SERVED && not_local.len() + 1 >= batch.members.len() {
            self.queues.keep_slots_apart(&mut self.next_moment);
        }
        self.send_alone(batch.take(&not_local).into_iter());
    }

    fn send_alone(&mut self, calls: impl DoubleEndedIterator<Item = PendingCall<C>>) {
        for mut call in calls.rev() {
            call.state.alone = true;
            self.queues.push(call, true, &mut self.next_moment);
        }
    }

    /// Returns a call to the router, which decides where it goes.
    fn give_back(&self, call: PendingCall<C>, obstacle: Obstacle, effects: &mut Effects<C>) {
        effects.returned.push(Returned { call, obstacle, from: self.server.address.clone() });
    }

    /// Gives up late calls, and sets the moment when the next one will be late.
    pub(crate) fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.next_moment.next().is_none_or(|next| next > now) {
            return;
        }
        self.next_moment = NextMoment::default();
        self.script_pause.ends(now).into_iter().for_each(|ends| self.next_moment.set(ends));
        let mut late = self.queues.take_if(|call| call.state.attempt_deadline <= now);
        self.queues.handle_timeout(self.server.timeout, now, &mut self.next_moment);
        let mut silent = false;
        for sent in self.connection.iter_mut().flat_map(|connection| &mut connection.in_flight) {
            if let Command::Script(batch) = &mut sent.command {
                silent |= batch.expire(now, &mut self.next_moment, &mut late);
            }
        }
        // Only a read on a replica has time left after this, and a read may run twice.
        let failure = self.server.failure(&io::ErrorKind::TimedOut.into(), false);
        effects.server_was_silent |= !late.is_empty();
        for call in late {
            if call.state.deadline <= now {
                effects.completions.fail(call.recipient, &failure.error);
            } else {
                self.give_back(call, Obstacle::Failed(failure.clone()), effects);
            }
        }
        if silent && self.silent_since.is_none() {
            self.silent_since = Some(now);
            self.probe();
        }
        self.connect_again_if_silent(now, effects);
    }

    /// Sends a PING to a silent server. Batches that were not sent yet wait again.
    fn probe(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        for batch in connection.send_probe() {
            self.queues.note_completed(batch.queue, batch.members.len());
            self.requeue(batch);
        }
    }

    /// The connection ended. Calls that were sent may have run. The others go with the next connection.
    pub(crate) fn handle_disconnected(
        &mut self,
        id: ConnectionId,
        error: &io::Error,
        now: Instant,
        effects: &mut Effects<C>,
    ) {
        if self.connection_mut(id).is_some() {
            self.lose_connection(error, now, effects);
        }
    }

    fn lose_connection(&mut self, error: &io::Error, now: Instant, effects: &mut Effects<C>) {
        self.drop_connection(error, effects);
        self.connect_if_needed(now, effects);
    }

    fn drop_connection(&mut self, error: &io::Error, effects: &mut Effects<C>) {
        let Some(mut connection) = self.connection.take() else { return };
        effects.actions.push_back(Action::Close(connection.id));
        self.silent_since = None;
        for sent in std::mem::take(&mut connection.in_flight).into_iter().rev() {
            let Command::Script(batch) = sent.command else { continue };
            self.queues.note_completed(batch.queue, batch.members.len());
            if sent.end > connection.sent() && batch.doubtful.is_none() {
                self.requeue(batch);
                continue;
            }
            let failure = self.server.failure(error, true);
            for call in batch.into_calls() {
                self.give_back(call, Obstacle::Failed(failure.clone()), effects);
            }
        }
        // Some waiting calls may use only this connection.
        for call in self.queues.take_if(|call| !call.may_use(None)) {
            effects.completions.fail(call.recipient, &connection_is_gone());
        }
    }

    /// Closes the connection and gives up attempts to open one.
    pub(crate) fn retire(self, effects: &mut Effects<C>) {
        let attempts = self.attempts.iter().map(|(id, _)| *id);
        let ids = self.connection.iter().map(|connection| connection.id).chain(attempts);
        effects.actions.extend(ids.map(Action::Close));
    }

    /// Fails every call.
    pub(crate) fn close(mut self, error: &Error, effects: &mut Effects<C>) {
        let sent = self.connection.iter_mut().flat_map(|connection| connection.in_flight.drain(..));
        let sent = sent.filter_map(|sent| match sent.command {
            Command::Script(batch) => Some(batch.into_calls()),
            Command::Asking | Command::Probe(_) => None,
        });
        for call in self.queues.take_all().into_iter().chain(sent.flatten()) {
            effects.completions.fail(call.recipient, error);
        }
        self.retire(effects);
    }

    /// Checks that little is kept while no call waits. Batches to a silent server stay until it answers or is replaced.
    #[cfg(test)]
    pub(crate) fn check_bounds(&self) {
        self.queues.check_bounds();
        assert!(self.attempts.len() <= MAX_ATTEMPTS);
        assert!(self.in_flight() == 0 || self.silent_since.is_some(), "a batch is left");
        assert!(self.in_flight() <= 2 * MAX_IN_FLIGHT);
    }
}
