//! Redis or Valkey. A blocking call runs on its caller's thread; other calls go through one engine that sends them in batches.
//!
//! `script` turns requests into one script call and its reply into answers. `protocol` is the transport as a state machine, and
//! `io` moves its bytes.

mod clear_all;
mod io;
mod ping;
mod protocol;
mod scan;
pub(crate) mod script;
mod servers;
#[cfg(test)]
mod simulation;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use smallvec::smallvec;

use super::Store;
use super::batch_guard::BatchGuard;
use super::call_context::CallContext;
use super::completion::{BatchCompletion, MakeCompletion, PingCompletion, wake};
use super::key_names::KeyNames;
use super::layer_states::LayerStates;
use super::request::{Answer, Entry, Operation};
use super::url::Endpoints;
use crate::counting::histogram::SharedHistogram;
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::log::Log;
use io::{BlockingCalls, Caller, Connector, Engine, EngineCall, guarded};
use protocol::{CallState, PendingCall, Recipient, ServerDirectory, no_answer, timed_out};
use script::{Grouping, Request};

pub(crate) use io::{EpollSet, ReaderRegistry};
#[cfg(feature = "bench")]
pub(crate) use protocol::ReplyBuffer;
pub use scan::{pattern_of_keys, scanned_keys};
pub(crate) use servers::stored_answer;
pub use servers::{KEY_DIGEST, ServerAddress, ServerConnection, ShardServers, StoreServers, redis_key, stored_limits};

/// A store on Redis or Valkey servers.
struct Redis {
    directory: Arc<ServerDirectory>,
    connector: Arc<Connector>,
    names: KeyNames,
    /// The most requests in one batch.
    max_batch: usize,
    blocking: PerProcess<BlockingCalls>,
    /// Started by the first call that does not block: a blocking program has no thread of ours.
    engine: PerProcess<Engine>,
    readers: Arc<PerProcess<ReaderRegistry>>,
    closed: AtomicBool,
}

/// A store on these servers. Nothing is connected before the first call.
pub(crate) fn open(
    endpoints: Endpoints,
    names: KeyNames,
    timeout: Duration,
    max_batch: usize,
    readers: Arc<PerProcess<ReaderRegistry>>,
    log: Arc<Log>,
    batch_sizes: Arc<SharedHistogram>,
) -> Result<Arc<dyn Store>> {
    let connector = Arc::new(Connector::new(&endpoints, log)?);
    let directory = Arc::new(ServerDirectory::new(endpoints, timeout).with_batch_sizes(batch_sizes));
    let (blocking, engine) = (PerProcess::new(), PerProcess::new());
    let closed = AtomicBool::new(false);
    Ok(Arc::new(Redis { directory, connector, names, max_batch, blocking, engine, readers, closed }))
}

impl Redis {
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        Ok(())
    }

    fn request(&self, entry: &Entry<'_>) -> Request {
        Request::new(&self.names, entry)
    }

    fn slot(&self, request: &Request) -> u16 {
        if self.directory.has_slots() { protocol::hash_slot(request.redis_key.as_bytes()) } else { 0 }
    }

    /// Whether a replica may serve an operation.
    fn may_read_replica(&self, operation: &Operation) -> bool {
        matches!(operation, Operation::Peek { .. }) && self.directory.reads_replicas()
    }

    fn call_state(&self, operation: &Operation, deadline: Instant) -> CallState {
        CallState::new(deadline, self.may_read_replica(operation))
    }

    /// When a call that begins now gives up.
    fn deadline(&self, context: &CallContext<'_>) -> Instant {
        context.deadline.unwrap_or_else(|| Instant::now() + self.directory.timeout())
    }

    fn blocking(&self) -> Result<Arc<ProcessValue<BlockingCalls>>> {
        self.check_open()?;
        self.blocking.get_or_try_init(|| {
            let (directory, connector) = (Arc::clone(&self.directory), Arc::clone(&self.connector));
            Ok(BlockingCalls::new(directory, connector, Arc::clone(&self.names.prefix)))
        })
    }

    fn engine(&self) -> Result<Arc<ProcessValue<Engine>>> {
        self.check_open()?;
        self.engine.get_or_try_init(|| {
            let (directory, connector) = (Arc::clone(&self.directory), Arc::clone(&self.connector));
            let engine = Engine::start(directory, connector, Arc::clone(&self.names.prefix), self.max_batch)?;
            self.readers.with(ReaderRegistry::default, |readers| engine.register(readers));
            Ok(engine)
        })
    }

    /// The slot of the requests; `None` when they have several.
    fn common_slot(&self, requests: &[Request]) -> Option<u16> {
        let slot = requests.first().map_or(0, |request| self.slot(request));
        let same = !self.directory.has_slots() || requests.iter().all(|request| self.slot(request) == slot);
        same.then_some(slot)
    }

    fn submit_requests(
        &self,
        requests: Vec<Request>,
        time: Option<u64>,
        deadline: Instant,
        batch: Option<&BatchGuard>,
        done: BatchCompletion,
    ) {
        let engine = match self.engine() {
            Ok(engine) => engine,
            Err(error) => return wake(done(Err(error))),
        };
        let call = match self.common_slot(&requests) {
            Some(slot) => EngineCall::Call(PendingCall {
                requests: requests.into(),
                grouping: Grouping::AllOrNothing,
                time,
                slot,
                state: CallState::by_itself(deadline),
                recipient: Recipient::All(Caller::new(done)),
            }),
            None => {
                let slots = requests.iter().map(|request| self.slot(request)).collect();
                EngineCall::Transaction { requests, slots, time, deadline, caller: Caller::new(done) }
            }
        };
        engine.enqueue(call, batch);
    }
}

impl Store for Redis {
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        let (blocking, request) = (self.blocking()?, self.request(entry));
        let (slot, call) = (self.slot(&request), self.call_state(&entry.operation, self.deadline(&context)));
        self.directory.batch_formed(1);
        let run = || blocking.run(smallvec![request], Grouping::Independent, context.now, slot, call);
        let mut answers = guarded(run)?;
        let mut answer = answers.pop().unwrap_or_else(|| Err(no_answer(self.directory.shown())))?;
        answer.may_be_old = self.may_read_replica(&entry.operation);
        Ok(answer)
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let requests: Vec<Request> = entries.iter().map(|entry| self.request(entry)).collect();
        let deadline = self.deadline(&context);
        if let Some(slot) = self.common_slot(&requests) {
            let (blocking, call) = (self.blocking()?, CallState::by_itself(deadline));
            self.directory.batch_formed(entries.len());
            let run = || blocking.run(requests.into(), Grouping::AllOrNothing, context.now, slot, call);
            let answers = guarded(run)?;
            return answers.into_iter().collect();
        }
        // Several nodes are asked at the same time, which the engine does.
        let (sender, receiver) = std::sync::mpsc::channel();
        let done: BatchCompletion = Box::new(move |result| {
            // The caller may have given up.
            let _ = sender.send(result);
            None
        });
        self.submit_requests(requests, context.now, deadline, None, done);
        // The engine answers by the deadline; a moment later it is too late even for a machine that was busy.
        let left = deadline.saturating_duration_since(Instant::now()) + protocol::RETRY_PAUSE;
        let late = || timed_out(self.directory.shown(), self.directory.timeout());
        receiver.recv_timeout(left).unwrap_or_else(|_| Err(late()))
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let engine = match self.engine() {
            Ok(engine) => engine,
            Err(error) => return Some(Err(error)),
        };
        let request = self.request(entry);
        let slot = self.slot(&request);
        let call = PendingCall {
            requests: std::iter::once(request).collect(),
            grouping: Grouping::Independent,
            time: context.now,
            slot,
            state: self.call_state(&entry.operation, self.deadline(&context)),
            recipient: Recipient::One(Caller::new(make(*states))),
        };
        engine.enqueue(EngineCall::Call(call), context.batch);
        None
    }

    fn after(&self, entry: &Entry<'_>, _: Option<u64>, _: &mut LayerStates, result: Result<Answer>) -> Result<Answer> {
        let mut answer = result?;
        answer.may_be_old = self.may_read_replica(&entry.operation);
        Ok(answer)
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        let requests: Vec<Request> = entries.iter().map(|entry| self.request(entry)).collect();
        self.submit_requests(requests, context.now, self.deadline(&context), context.batch, done);
    }

    fn ping(&self, context: CallContext<'_>) -> Result<()> {
        let end = Instant::now() + self.directory.timeout();
        let blocking = self.blocking()?;
        guarded(|| ping::all(&blocking, context.deadline.map_or(end, |deadline| deadline.min(end))))
    }

    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion) {
        // Every primary is asked, one after the other, on a thread that ends by the deadline.
        let deadline = self.deadline(&context);
        let blocking = match self.blocking() {
            Ok(blocking) => blocking,
            Err(error) => return wake(done(Err(error))),
        };
        on_thread("tidegate-ping", done, move || ping::all(&blocking, deadline));
    }

    fn clear_all(&self) -> Result<()> {
        let blocking = self.blocking()?;
        guarded(|| clear_all::clear_all(&blocking, self.directory.timeout()))
    }

    fn submit_clear_all(&self, done: PingCompletion) {
        let timeout = self.directory.timeout();
        match self.blocking() {
            Ok(blocking) => on_thread("tidegate-clear", done, move || clear_all::clear_all(&blocking, timeout)),
            Err(error) => wake(done(Err(error))),
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(blocking) = self.blocking.get() {
            blocking.clear();
        }
        if let Some(engine) = self.engine.get() {
            engine.stop();
        }
    }

    fn try_immediate(&self, _: &Entry<'_>, _: CallContext<'_>) -> Option<Result<Answer>> {
        None
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs what takes several calls on a thread of its own, and gives its result to the completion.
fn on_thread(name: &str, done: PingCompletion, run: impl FnOnce() -> Result<()> + Send + 'static) {
    let done = Arc::new(parking_lot::Mutex::new(Some(done)));
    let shared = Arc::clone(&done);
    let finish = move |result| {
        if let Some(done) = shared.lock().take() {
            wake(done(result));
        }
    };
    let finished = finish.clone();
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(move || finished(guarded(run))) {
        finish(Err(io::cannot_start(&error)));
    }
}
