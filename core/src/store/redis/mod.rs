//! Redis or Valkey. A blocking call runs on its caller's thread. One engine sends all other calls in batches.
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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use smallvec::smallvec;

use super::Store;
use super::batch_guard::BatchGuard;
use super::call_context::{CallContext, Waits};
use super::completion::{Completion, awaited};
use super::key_names::KeyNames;
use super::layer_states::LayerStates;
use super::panics::{Caller, guarded};
use super::request::{Answer, Entry, Operation};
use super::url::Endpoints;
use crate::algorithm::Rule;
use crate::counting::histogram::SharedHistogram;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::log::Log;
#[cfg(feature = "postgres")]
pub(crate) use io::tls_config;
use io::{BlockingCalls, Connector, Engine, EngineCall};
use protocol::{CallState, PendingCall, Recipient, ServerDirectory, no_answer, timed_out};
use script::{Grouping, Request};

pub(crate) use io::{EpollSet, ReaderRegistry};
#[cfg(feature = "bench")]
pub(crate) use protocol::ReplyBuffer;
pub use scan::{pattern_of_keys, scanned_keys};
pub use servers::{ServerAddress, ServerConnection, ShardServers, StoreServers, redis_key, stored_limits};
pub(crate) use servers::{stored_answer, stored_override};

/// A store on Redis or Valkey servers.
struct Redis {
    directory: Arc<ServerDirectory>,
    connector: Arc<Connector>,
    names: KeyNames,
    /// The most requests in one batch.
    max_batch: usize,
    blocking: PerProcess<BlockingCalls>,
    /// The first call that does not block starts it, so a program that only blocks gets no extra thread.
    engine: PerProcess<Engine>,
    readers: Arc<PerProcess<ReaderRegistry>>,
    closed: AtomicBool,
}

/// Gives calendars that know no time yet the time of this machine. Later they get the time of the servers.
#[cold]
fn guess_time(plan: &Plan) {
    for calendar in plan.rules.iter().filter_map(Rule::calendar).filter(|calendar| calendar.knows_nothing()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        calendar.around(now.as_micros() as u64);
    }
}

/// Opens a store on these servers. It connects at the first call.
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
        if entry.plan.has_calendar {
            guess_time(entry.plan);
        }
        Request::new(&self.names, entry)
    }

    fn slot(&self, request: &Request) -> u16 {
        if self.directory.has_slots() { protocol::hash_slot(request.slot_name()) } else { 0 }
    }

    /// True if a replica may serve an operation.
    fn may_read_replica(&self, operation: &Operation) -> bool {
        matches!(operation, Operation::Peek { .. }) && self.directory.reads_replicas()
    }

    fn call_state(&self, operation: &Operation, deadline: Instant) -> CallState {
        CallState::new(deadline, self.may_read_replica(operation))
    }

    /// The moment at which a call that begins now gives up.
    fn deadline<T>(&self, context: &CallContext<'_, T>) -> Instant {
        let end = Instant::now() + self.directory.timeout();
        context.deadline.map_or(end, |deadline| deadline.min(end))
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

    /// The slot of the requests, or `None` if they have several.
    fn common_slot(&self, requests: &[Request]) -> Option<u16> {
        let slot = requests.first().map_or(0, |request| self.slot(request));
        let same = !self.directory.has_slots() || requests.iter().all(|request| self.slot(request) == slot);
        same.then_some(slot)
    }

    fn ask(&self, entry: &Entry<'_>, context: &CallContext<'_>) -> Result<Answer> {
        let (blocking, request) = (self.blocking()?, self.request(entry));
        let (slot, call) = (self.slot(&request), self.call_state(&entry.operation, self.deadline(context)));
        self.directory.batch_formed(1);
        let run = || blocking.run(smallvec![request], Grouping::Independent, context.now, slot, call);
        let mut answers = guarded(run)?;
        answers.pop().unwrap_or_else(|| Err(no_answer(self.directory.shown())))
    }

    /// Gives the engine a call. `make` makes the call, and runs only if there is an engine.
    fn enqueue(&self, batch: Option<&BatchGuard>, make: impl FnOnce() -> EngineCall) -> Result<()> {
        self.engine()?.enqueue(make(), batch);
        Ok(())
    }

    /// Gives the engine requests that are decided together. The slot is `None` if they have several.
    fn enqueue_all(
        &self,
        (requests, slot): (Vec<Request>, Option<u16>),
        context: &CallContext<'_, Vec<Answer>>,
        deadline: Instant,
        make: impl FnOnce() -> Completion<Vec<Answer>>,
    ) -> Result<()> {
        let time = context.now;
        self.enqueue(context.batch, || {
            let caller = Caller::new(make());
            let Some(slot) = slot else {
                let slots = requests.iter().map(|request| self.slot(request)).collect();
                return EngineCall::Transaction { requests, slots, time, deadline, caller };
            };
            EngineCall::Call(PendingCall {
                requests: requests.into(),
                grouping: Grouping::AllOrNothing,
                time,
                slot,
                state: CallState::by_itself(deadline),
                recipient: Recipient::All(caller),
            })
        })
    }
}

impl Store for Redis {
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        let make = match context.waits {
            Waits::Never => return None,
            Waits::Here => {
                let deadline = self.deadline(&context);
                states.deadline = Some(deadline);
                let result = self.ask(entry, &CallContext { deadline: Some(deadline), ..context });
                return Some(self.finish(entry, context.now, states, result));
            }
            Waits::Later(make) => make,
        };
        let deadline = self.deadline(&context);
        states.deadline = Some(deadline);
        let queued = self.enqueue(context.batch, || {
            let request = self.request(entry);
            let slot = self.slot(&request);
            EngineCall::Call(PendingCall {
                requests: std::iter::once(request).collect(),
                grouping: Grouping::Independent,
                time: context.now,
                slot,
                state: self.call_state(&entry.operation, deadline),
                recipient: Recipient::One(Caller::new(make(*states))),
            })
        });
        queued.err().map(Err)
    }

    fn finish(
        &self,
        entry: &Entry<'_>,
        _: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let mut answer = result?.within(states.deadline);
        answer.may_be_old = self.may_read_replica(&entry.operation);
        Ok(answer)
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        let requests: Vec<Request> = entries.iter().map(|entry| self.request(entry)).collect();
        let (slot, deadline) = (self.common_slot(&requests), self.deadline(&context));
        match (context.waits, slot) {
            (Waits::Never, _) => None,
            (Waits::Later(make), slot) => {
                self.enqueue_all((requests, slot), &context, deadline, || make(*states)).err().map(Err)
            }
            (Waits::Here, Some(slot)) => Some(self.blocking().and_then(|blocking| {
                self.directory.batch_formed(entries.len());
                let call = CallState::by_itself(deadline);
                let run = || blocking.run(requests.into(), Grouping::AllOrNothing, context.now, slot, call);
                guarded(run)?.into_iter().collect()
            })),
            // The engine asks several nodes at the same time.
            (Waits::Here, None) => {
                let (completion, receiver) = awaited();
                if let Err(error) = self.enqueue_all((requests, None), &context, deadline, || completion) {
                    return Some(Err(error));
                }
                // The engine answers by the deadline. The extra moment is for a busy machine.
                let left = deadline.saturating_duration_since(Instant::now()) + protocol::RETRY_PAUSE;
                let late = || timed_out(self.directory.shown(), self.directory.timeout());
                Some(receiver.recv_timeout(left).unwrap_or_else(|_| Err(late())))
            }
        }
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        let end = Instant::now() + self.directory.timeout();
        let blocking = self.blocking()?;
        guarded(|| ping::all(&blocking, deadline.map_or(end, |deadline| deadline.min(end))))
    }

    fn clear_all(&self) -> Result<()> {
        let blocking = self.blocking()?;
        guarded(|| clear_all::clear_all(&blocking, self.directory.timeout()))
    }

    /// Writes the list first, so that it contains every override in force. Writes it again at the end, in case another
    /// process has removed the key from the list meanwhile.
    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let Operation::Override(change) = &entry.operation else { return Ok(()) };
        let (value, list) = (entry.operation.clone(), Operation::NoteOverride(Arc::clone(change)));
        let operations = if change.text.is_empty() { vec![value, list] } else { vec![list.clone(), value, list] };
        operations
            .into_iter()
            .try_for_each(|operation| self.ask(&Entry { operation, ..*entry }, &CallContext::at(now)).map(drop))
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let list = Entry { operation: Operation::ListOverrides, ..*entry };
        self.ask(&list, &CallContext::at(now))
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
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}
