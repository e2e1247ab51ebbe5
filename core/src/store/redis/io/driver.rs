//! Drives the router: reads and writes its connections, opens and closes them, and tells it the time.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::connection::{BlockingConnection, Connector};
use super::discover::discover;
use super::engine_call::{CallQueue, EngineCall, EngineCallers, closed, complete_all, interrupted};
use super::epoll_set::ReplyReader;
use super::panics::caught;
use super::stream::Stream;
use crate::store::redis::protocol::{Action, Completed, ConnectionId, Failure, MAX_BATCH_DELAY, Router, Topology};

/// What a step of the driver leaves.
pub(super) enum DriverState {
    Busy,
    /// Nothing is left to do until the thread is woken.
    Idle,
    Closed,
}

/// Connects the router with sockets and the clock.
pub(crate) struct Driver {
    router: Router<EngineCallers>,
    connector: Arc<Connector>,
    /// Calls that were taken from the queue. The two lists are exchanged, so that neither is allocated anew.
    calls: VecDeque<EngineCall>,
    connections: Vec<(ConnectionId, Stream)>,
    connecting: Vec<(ConnectionId, JoinHandle<Result<BlockingConnection, Failure>>)>,
    discovering: Option<JoinHandle<Result<Topology, Failure>>>,
    /// Who reads replies.
    reader: ReplyReader,
    /// When the thread looks again although it was not woken.
    alarm: Option<Instant>,
    /// Whether there were calls since the alarm last went off.
    worked: bool,
}

impl Driver {
    pub(super) const fn new(router: Router<EngineCallers>, connector: Arc<Connector>) -> Self {
        Self {
            router,
            connector,
            calls: VecDeque::new(),
            connections: Vec::new(),
            connecting: Vec::new(),
            discovering: None,
            reader: None,
            alarm: None,
            worked: false,
        }
    }

    /// Runs a step. When it panics, every call gets an error, and the driver begins anew: `otherwise` is its result then.
    pub(super) fn guarded<R>(&mut self, otherwise: R, step: impl FnOnce(&mut Self) -> R) -> R {
        caught(|| step(self)).unwrap_or_else(|| {
            let router = self.router.renewed();
            let mut broken = std::mem::replace(&mut self.router, router);
            (self.connections, self.connecting, self.discovering) = Default::default();
            self.calls.clear();
            let mut completed = Vec::new();
            broken.take_completions(&mut completed);
            complete_all(&mut completed);
            caught(|| drop(broken));
            otherwise
        })
    }

    /// Gives the calls that were taken from the queue to the router; says whether there were any.
    fn submit_calls(&mut self, now: Instant) -> bool {
        let any = !self.calls.is_empty();
        self.worked |= any;
        for call in self.calls.drain(..) {
            match call {
                EngineCall::Call(call) => self.router.submit(call, now),
                EngineCall::Transaction { requests, slots, time, deadline, caller } => {
                    self.router.submit_transaction(requests, &slots, time, deadline, caller, now);
                }
            }
        }
        any
    }

    /// Gives the calls of the queue to the router and sends what can be sent. Says whether nothing is left to do for the
    /// engine's thread before its alarm goes off.
    pub(super) fn serve(&mut self, queue: &Mutex<CallQueue>) -> bool {
        {
            let mut queue = queue.lock();
            if queue.closed {
                // The connections may be gone; the thread answers.
                return false;
            }
            std::mem::swap(&mut queue.calls, &mut self.calls);
        }
        let now = Instant::now();
        self.submit_calls(now);
        // An event loop that reads replies may be busy for long: the thread comes to see.
        let mut served = self.reader.is_none() || self.alarm.is_some_and(|alarm| alarm <= now + MAX_BATCH_DELAY);
        for (id, stream) in &mut self.connections {
            served &= send(&mut self.router, *id, stream, now);
        }
        served &= !self.router.has_output();
        served && self.router.poll_timeout().is_none_or(|due| self.alarm.is_some_and(|alarm| alarm <= due))
    }

    /// Reads the connections that an event loop watches, on its thread. Says whether nothing is left for the engine's thread.
    pub(super) fn read_polled(&mut self, completed: &mut Vec<Completed<EngineCallers>>) -> bool {
        let (now, mut cx) = (Instant::now(), Context::from_waker(Waker::noop()));
        for (id, stream) in &mut self.connections {
            if stream.is_polled() {
                stream.mark_readable();
                read(&mut self.router, *id, stream, &mut cx, now);
            }
        }
        self.router.take_completions(completed);
        let mut done = !self.router.has_output();
        for (id, stream) in &mut self.connections {
            // What was formed already; new batches wait for the callers that may call again.
            let unsent = self.router.unsent(*id);
            if let Ok(count) = stream.write(None, unsent) {
                done &= count == unsent.len() && !stream.has_unsent();
                self.router.handle_sent(*id, count);
            } else {
                done = false;
            }
        }
        done
    }

    /// One step of the engine's thread: does all that can be done now.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        queue: &Mutex<CallQueue>,
        timer: Pin<&mut Sleep>,
        completed: &mut Vec<Completed<EngineCallers>>,
    ) -> DriverState {
        let (is_closed, reader_change) = {
            let mut queue = queue.lock();
            if !queue.closed {
                std::mem::swap(&mut queue.calls, &mut self.calls);
            }
            (queue.closed, queue.reader_change.take())
        };
        let now = Instant::now();
        if is_closed {
            self.router.close(&closed());
            self.router.take_completions(completed);
            (self.connections, self.connecting, self.discovering) = Default::default();
            return DriverState::Closed;
        }
        let mut busy = reader_change.is_some();
        if let Some(reader) = reader_change {
            self.change_reader(reader, now);
        }
        busy |= self.submit_calls(now);
        busy |= self.poll_discovery(cx, now);
        busy |= self.poll_connecting(cx, now);
        for (id, stream) in &mut self.connections {
            if stream.is_polled() {
                stream.mark_readable();
            }
            busy |= read(&mut self.router, *id, stream, cx, now);
        }
        if self.router.poll_timeout().is_some_and(|due| due <= now) {
            self.router.handle_timeout(now);
        }
        busy |= self.act();
        for (id, stream) in &mut self.connections {
            write(&mut self.router, *id, stream, cx, now);
        }
        busy |= self.router.has_output();
        self.router.take_completions(completed);
        if busy || self.sleep(cx, now, timer) { DriverState::Busy } else { DriverState::Idle }
    }

    /// Sets the alarm; says whether it has gone off already.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, mut timer: Pin<&mut Sleep>) -> bool {
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            (self.alarm, self.worked) = (None, false);
        }
        // While there is work the alarm goes off before any call has waited too long: so callers that serve themselves need not
        // wake the thread only to set it.
        let works = self.worked || self.reader.is_some() && !self.router.is_idle();
        let round = works.then(|| now + MAX_BATCH_DELAY);
        let next = self.router.poll_timeout().into_iter().chain(round).min();
        // To set it costs more than to hear it too early.
        self.alarm = next.map(|next| self.alarm.filter(|alarm| *alarm > now && *alarm <= next).unwrap_or(next));
        let Some(next) = self.alarm else { return false };
        if timer.deadline().into_std() != next {
            timer.as_mut().reset(next.into());
        }
        timer.poll(cx).is_ready()
    }

    /// Does what the router asks for; says whether there was anything.
    fn act(&mut self) -> bool {
        let mut acted = false;
        while let Some(action) = self.router.poll_action() {
            acted = true;
            match action {
                Action::Connect { id, server, deadline } => {
                    let connector = Arc::clone(&self.connector);
                    let open = move || connector.open(&server, deadline);
                    self.connecting.push((id, tokio::task::spawn_blocking(open)));
                }
                Action::Close(id) => {
                    self.connections.retain(|(other, _)| *other != id);
                    self.connecting.retain(|(other, _)| *other != id);
                }
                Action::Discover(discovery) => {
                    let connector = Arc::clone(&self.connector);
                    let find = move || discover(&connector, *discovery);
                    self.discovering = Some(tokio::task::spawn_blocking(find));
                }
            }
        }
        acted
    }

    fn poll_discovery(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let Some(discovering) = &mut self.discovering else { return false };
        let Poll::Ready(found) = Pin::new(discovering).poll(cx) else { return false };
        self.discovering = None;
        let found = found.unwrap_or_else(|_| Err(Failure::of_server(interrupted())));
        self.router.handle_discovered(found, now);
        true
    }

    fn poll_connecting(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut ended = Vec::new();
        self.connecting.retain_mut(|(id, attempt)| match Pin::new(attempt).poll(cx) {
            Poll::Ready(opened) => {
                ended.push((*id, opened));
                false
            }
            Poll::Pending => true,
        });
        let busy = !ended.is_empty();
        for (id, opened) in ended {
            let opened = opened.unwrap_or_else(|_| Err(Failure::of_server(interrupted())));
            let opened = opened.and_then(|connection| {
                Stream::new(connection, self.reader.as_ref()).map_err(|error| self.router.failure(id, &error))
            });
            match opened {
                Ok(stream) if self.router.handle_connected(id, now) => self.connections.push((id, stream)),
                Ok(_) => {}
                Err(failure) => self.router.handle_connect_failed(id, failure, now),
            }
        }
        busy
    }

    /// Leaves reading to an event loop, or takes it back.
    fn change_reader(&mut self, reader: ReplyReader, now: Instant) {
        self.reader = reader;
        for (id, stream) in std::mem::take(&mut self.connections) {
            match stream.read_through(self.reader.as_ref()) {
                Ok(stream) => self.connections.push((id, stream)),
                Err(error) => self.router.handle_disconnected(id, &error, now),
            }
        }
    }
}

/// Reads what has come; says whether anything had.
fn read(
    router: &mut Router<EngineCallers>,
    id: ConnectionId,
    stream: &mut Stream,
    cx: &mut Context<'_>,
    now: Instant,
) -> bool {
    let mut busy = false;
    while let Some(buffer) = router.read_buffer(id) {
        match stream.poll_read(cx, buffer) {
            Poll::Pending => break,
            Poll::Ready(Ok(count)) => router.handle_received(id, count, now),
            Poll::Ready(Err(error)) => router.handle_disconnected(id, &error, now),
        }
        busy = true;
    }
    busy
}

/// Sends what the system takes at once; says whether that was all. Where it was not, the engine's thread goes on.
fn send(router: &mut Router<EngineCallers>, id: ConnectionId, stream: &mut Stream, now: Instant) -> bool {
    let bytes = router.transmit(id, now);
    if bytes.is_empty() {
        return !stream.has_unsent();
    }
    let length = bytes.len();
    let Ok(count) = stream.write(None, bytes) else { return false };
    router.handle_sent(id, count);
    count == length && !stream.has_unsent()
}

/// Sends what can be sent, and has the thread woken when there is room for more.
fn write(
    router: &mut Router<EngineCallers>,
    id: ConnectionId,
    stream: &mut Stream,
    cx: &mut Context<'_>,
    now: Instant,
) {
    let bytes = router.transmit(id, now);
    if bytes.is_empty() && !stream.has_unsent() {
        return;
    }
    match stream.write(Some(cx), bytes) {
        Ok(count) => router.handle_sent(id, count),
        Err(error) => router.handle_disconnected(id, &error, now),
    }
}

#[cfg(test)]
mod tests;
