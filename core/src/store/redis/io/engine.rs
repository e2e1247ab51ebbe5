//! The engine: one thread for all calls that do not block, and the way to it. Its driver reads and writes the
//! connections of the router, opens and closes them, and passes it the time.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::process::lock::Mutex;
use tokio::time::Sleep;

use super::attempts::Attempts;
use super::connection::Connector;
use super::epoll_set::ReplyReader;
use super::handover::Handover;
use super::host_loop::{PolledEngine, ReaderRegistry};
use super::stream::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::store::batch_guard::{BatchGuard, Flush};
use crate::store::completion::{WakeSet, WakeTarget};
use crate::store::panics::{Caller, caught};
use crate::store::redis::protocol::{
    Action, Callers, Completed, ConnectionId, MAX_BATCH_DELAY, PendingCall, Recipient, Router, ServerDirectory,
};
use crate::store::redis::script::Request;
use crate::store::request::Answer;

/// How long a thread that opened a connection waits for the next one.
const IDLE_THREAD: Duration = Duration::from_secs(1);

/// The way in: cheap to call from any thread.
pub(crate) struct Engine {
    shared: Arc<EngineShared>,
}

/// The state that callers and the thread share.
pub(crate) struct EngineShared {
    handover: Handover<CallQueue, Driver>,
    /// An empty list for the completions that an event loop gives out, so that it is not allocated anew each time.
    completed: Mutex<Vec<Completed<EngineCallers>>>,
}

impl Engine {
    pub(crate) fn start(
        directory: Arc<ServerDirectory>,
        connector: Arc<Connector>,
        prefix: Arc<str>,
        max_batch: usize,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(IDLE_THREAD).build();
        let runtime = runtime.map_err(|error| Error::no_thread(&error))?;
        let driver = Driver::new(Router::new(directory, prefix, max_batch), connector);
        let shared = Arc::new(EngineShared {
            handover: Handover::new(CallQueue::default(), driver),
            completed: Mutex::default(),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                runtime.block_on(shared.run());
                // An attempt to connect may be under way. It ends by itself.
                runtime.shutdown_background();
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-redis".to_owned());
        thread.spawn(run).map_err(|error| Error::no_thread(&error))?;
        Ok(Self { shared })
    }

    pub(crate) fn register(&self, readers: &ReaderRegistry) {
        let engine: Arc<dyn PolledEngine> = self.shared.clone();
        readers.register(&engine);
    }

    /// Queues a call. With a guard it is sent with the others of the guard, otherwise at once.
    pub(crate) fn enqueue(&self, call: EngineCall, batch: Option<&BatchGuard>) {
        let refused = self.shared.handover.with_queue(|queue| {
            if queue.closed {
                return Some(call);
            }
            queue.calls.push_back(call);
            None
        });
        match (refused, batch) {
            (Some(call), _) => WakeSet::default().add(call.fail(&closed())),
            (None, Some(batch)) => batch.join(&self.shared),
            (None, None) => self.shared.flush(),
        }
    }

    /// Ends the thread. Calls that wait fail with `closed`.
    pub(crate) fn stop(&self) {
        self.shared.handover.with_queue(|queue| queue.closed = true);
        self.shared.handover.wake();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Flush for EngineShared {
    /// Sends as much as possible from this thread, which spares the way to the engine's thread.
    fn flush(&self) {
        self.handover.serve(|driver, queue| driver.guarded(false, |driver| driver.serve(queue)));
    }
}

impl PolledEngine for EngineShared {
    fn read_through(&self, reader: ReplyReader) {
        self.handover.with_queue(|queue| queue.reader_change = Some(reader));
        self.handover.wake();
    }

    fn poll_replies(&self) {
        let mut completed = std::mem::take(&mut *self.completed.lock());
        // The thread that has the driver may wait for a lock of this one. Unread bytes are reported again.
        let done =
            self.handover.try_with_machine(|driver| driver.guarded(false, |driver| driver.read_polled(&mut completed)));
        complete_all(&mut completed);
        *self.completed.lock() = completed;
        if done == Some(false) {
            self.handover.wake();
        }
    }
}

impl EngineShared {
    /// The loop of the thread.
    async fn run(&self) {
        let mut timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        let mut completed = Vec::new();
        poll_fn(|cx| {
            self.handover.poll(cx, |cx, driver, queue| {
                loop {
                    let state = driver
                        .lock()
                        .guarded(DriverState::Busy, |driver| driver.poll(cx, queue, timer.as_mut(), &mut completed));
                    // The callers get their answers before more is done, and without the lock: they may call again.
                    complete_all(&mut completed);
                    match state {
                        DriverState::Busy => {}
                        DriverState::Idle => return Poll::Pending,
                        DriverState::Closed => return Poll::Ready(()),
                    }
                }
            })
        })
        .await;
        let left = self.handover.with_queue(|queue| std::mem::take(&mut queue.calls));
        let mut wakes = WakeSet::default();
        left.into_iter().for_each(|call| wakes.add(call.fail(&closed())));
    }
}

/// Calls on their way to the router.
#[derive(Default)]
pub(crate) struct CallQueue {
    calls: VecDeque<EngineCall>,
    closed: bool,
    /// A new reader that the thread has not taken over yet.
    reader_change: Option<ReplyReader>,
}

/// The callers of the engine.
#[derive(Default)]
pub(crate) struct EngineCallers;

impl Callers for EngineCallers {
    type One = Caller<Answer>;
    type All = Caller<Vec<Answer>>;
}

/// A call for the engine.
pub(crate) enum EngineCall {
    Call(PendingCall<EngineCallers>),
    Transaction {
        requests: Vec<Request>,
        slots: Vec<u16>,
        time: Option<u64>,
        deadline: Instant,
        caller: Caller<Vec<Answer>>,
    },
}

impl EngineCall {
    fn fail(self, error: &Error) -> WakeTarget {
        match self {
            Self::Call(PendingCall { recipient: Recipient::One(caller), .. }) => caller.complete(Err(error.clone())),
            Self::Call(PendingCall { recipient: Recipient::All(caller), .. }) | Self::Transaction { caller, .. } => {
                caller.complete(Err(error.clone()))
            }
            // A group belongs to a transaction, which the router makes.
            Self::Call(PendingCall { recipient: Recipient::Group { .. }, .. }) => None,
        }
    }
}

/// Gives answers out, and then wakes each waiting thread or loop once.
fn complete_all(completed: &mut Vec<Completed<EngineCallers>>) {
    if completed.is_empty() {
        return;
    }
    let mut wakes = WakeSet::default();
    completed.drain(..).for_each(|completed| {
        wakes.add(match completed {
            Completed::One(caller, answer) => caller.complete(answer),
            Completed::All(caller, answers) => caller.complete(answers),
        });
    });
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter is closed")
}

/// The state after a step of the driver.
enum DriverState {
    Busy,
    /// Nothing is left to do until the thread is woken.
    Idle,
    Closed,
}

/// Connects the router with sockets and the clock.
pub(crate) struct Driver {
    router: Router<EngineCallers>,
    connector: Arc<Connector>,
    /// Calls taken from the queue. The two lists are swapped, so that neither is allocated anew.
    calls: VecDeque<EngineCall>,
    connections: Vec<(ConnectionId, Stream)>,
    attempts: Attempts,
    /// The event loop that reads replies, if one does.
    reader: ReplyReader,
    /// When the thread looks again although it was not woken.
    alarm: Option<Instant>,
    /// True if there were calls since the alarm last went off.
    worked: bool,
}

impl Driver {
    fn new(router: Router<EngineCallers>, connector: Arc<Connector>) -> Self {
        Self {
            router,
            connector,
            calls: VecDeque::new(),
            connections: Vec::new(),
            attempts: Attempts::default(),
            reader: None,
            alarm: None,
            worked: false,
        }
    }

    /// Runs a step. If it panics, every call gets an error, the driver begins anew, and the result is `otherwise`.
    fn guarded<R>(&mut self, otherwise: R, step: impl FnOnce(&mut Self) -> R) -> R {
        caught(|| step(self)).unwrap_or_else(|| {
            let router = self.router.renewed();
            let mut broken = std::mem::replace(&mut self.router, router);
            (self.connections, self.attempts) = Default::default();
            self.calls.clear();
            let mut completed = Vec::new();
            broken.take_completions(&mut completed);
            complete_all(&mut completed);
            caught(|| drop(broken));
            otherwise
        })
    }

    /// Gives the router the calls that were taken from the queue. Returns true if there were any.
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

    /// Gives the router the calls of the queue and sends as much as possible. Returns true if nothing is left for the
    /// engine's thread before its alarm goes off.
    fn serve(&mut self, queue: &Mutex<CallQueue>) -> bool {
        {
            let mut queue = queue.lock();
            if queue.closed {
                // The connections may be gone. The thread answers.
                return false;
            }
            std::mem::swap(&mut queue.calls, &mut self.calls);
        }
        let now = Instant::now();
        self.submit_calls(now);
        // An event loop that reads replies may be busy for long, so the alarm of the thread must go off soon.
        let mut served = self.reader.is_none() || self.alarm.is_some_and(|alarm| alarm <= now + MAX_BATCH_DELAY);
        for (id, stream) in &mut self.connections {
            // If it fails, the thread hears of it too.
            served &= write(&mut self.router, *id, stream, None, now).unwrap_or_default();
        }
        served &= !self.router.has_output();
        served && self.router.poll_timeout().is_none_or(|due| self.alarm.is_some_and(|alarm| alarm <= due))
    }

    /// Reads the connections of an event loop on its thread. Returns true if nothing is left for the engine's thread.
    fn read_polled(&mut self, completed: &mut Vec<Completed<EngineCallers>>) -> bool {
        let now = Instant::now();
        let mut cx = Context::from_waker(Waker::noop());
        for (id, stream) in &mut self.connections {
            if stream.is_polled() {
                stream.mark_readable();
                read(&mut self.router, *id, stream, &mut cx, now);
            }
        }
        self.router.take_completions(completed);
        let mut done = !self.router.has_output();
        for (id, stream) in &mut self.connections {
            // Sends only batches that are formed already. New ones wait for the callers, who may call again.
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
    fn poll(
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
            (self.connections, self.attempts) = Default::default();
            return DriverState::Closed;
        }
        let mut busy = reader_change.is_some();
        if let Some(reader) = reader_change {
            self.change_reader(reader, now);
        }
        busy |= self.submit_calls(now);
        busy |= self.poll_attempts(cx, now);
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
            if let Err(error) = write(&mut self.router, *id, stream, Some(cx), now) {
                self.router.handle_disconnected(*id, &error, now);
            }
        }
        busy |= self.router.has_output();
        self.router.take_completions(completed);
        if busy || self.sleep(cx, now, timer) { DriverState::Busy } else { DriverState::Idle }
    }

    /// Sets the alarm. Returns true if it has gone off already.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, mut timer: Pin<&mut Sleep>) -> bool {
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            (self.alarm, self.worked) = (None, false);
        }
        // While there is work, the alarm goes off before any call has waited too long. So callers that serve themselves
        // need not wake the thread only to set it.
        let works = self.worked || self.reader.is_some() && !self.router.is_idle();
        let round = works.then(|| now + MAX_BATCH_DELAY);
        let next = self.router.poll_timeout().into_iter().chain(round).min();
        // Setting the alarm costs more than hearing it too early.
        self.alarm = next.map(|next| self.alarm.filter(|alarm| *alarm > now && *alarm <= next).unwrap_or(next));
        let Some(next) = self.alarm else { return false };
        if timer.deadline().into_std() != next {
            timer.as_mut().reset(next.into());
        }
        timer.poll(cx).is_ready()
    }

    /// Does the tasks of the router. Returns true if there were any.
    fn act(&mut self) -> bool {
        let mut acted = false;
        while let Some(action) = self.router.poll_action() {
            acted = true;
            match action {
                Action::Connect { id, server, deadline } => {
                    self.attempts.connect(Arc::clone(&self.connector), id, server, deadline);
                }
                Action::Close(id) => {
                    self.connections.retain(|(other, _)| *other != id);
                    self.attempts.give_up(id);
                }
                Action::Discover(discovery) => self.attempts.discover(Arc::clone(&self.connector), *discovery),
            }
        }
        acted
    }

    /// Passes ended attempts to the router. Returns true if there were any.
    fn poll_attempts(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        let mut ended = false;
        if let Some(found) = self.attempts.poll_discovered(cx) {
            ended = true;
            self.router.handle_discovered(found, now);
        }
        while let Some((id, opened)) = self.attempts.poll_connected(cx) {
            ended = true;
            let opened = opened.and_then(|connection| {
                Stream::new(connection, self.reader.as_ref()).map_err(|error| self.router.failure(id, &error))
            });
            match opened {
                Ok(stream) if self.router.handle_connected(id, now) => self.connections.push((id, stream)),
                Ok(_) => {}
                Err(failure) => self.router.handle_connect_failed(id, failure, now),
            }
        }
        ended
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

/// Reads the bytes that have come. Returns true if there were any, or if the connection ended.
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

/// Sends as much as the system takes at once. Returns true if that was all. With a context, new room wakes the thread.
fn write(
    router: &mut Router<EngineCallers>,
    id: ConnectionId,
    stream: &mut Stream,
    cx: Option<&mut Context<'_>>,
    now: Instant,
) -> io::Result<bool> {
    let bytes = router.transmit(id, now);
    let length = bytes.len();
    if length == 0 && !stream.has_unsent() {
        return Ok(true);
    }
    let count = stream.write(cx, bytes)?;
    router.handle_sent(id, count);
    Ok(count == length && !stream.has_unsent())
}

#[cfg(test)]
mod tests;
