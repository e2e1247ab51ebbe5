//! A store on a machine: how its callers wait, and what needs more than one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::engine::{GroupRecipient, SubmittedGroup, SwapEngine, SwapIo};
use super::value::StoredValue;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{MAX_OVERRIDDEN_KEYS, Plan};
use crate::process::fork::{PerProcess, ProcessValue};
use crate::process::log::Log;
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::completion::{Completion, awaited};
use crate::store::key_names::KeyNames;
use crate::store::key_value_store::{CallerQueue, WaitingCaller};
use crate::store::layer_states::LayerStates;
use crate::store::panics::Caller;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry, StoredOverride};
use crate::store::stored_key::StoredKey;
use crate::store::usage::stored_override;

/// The engine answers by the deadline. A caller gives it so much more time, for a busy machine.
const GRACE: Duration = Duration::from_millis(15);

/// A completion that also wakes a queue of callers.
pub(crate) fn waking<T: 'static>(completion: Completion<T>, callers: Option<Arc<dyn CallerQueue>>) -> Completion<T> {
    let Some(callers) = callers else { return completion };
    Box::new(move |result| {
        completion(result);
        Some(callers)
    })
}

/// The answer, if it arrives until that moment. A caller of a queue works for the store meanwhile.
pub(crate) fn received<T>(
    answer: &Receiver<Result<T>>,
    caller: Option<&WaitingCaller>,
    until: Instant,
) -> Option<Result<T>> {
    let Some(caller) = caller else {
        return answer.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    };
    let mut received = None;
    let mut has_answer = || {
        match answer.try_recv() {
            Ok(result) => received = Some(result),
            Err(error) => return received.is_some() || error == TryRecvError::Disconnected,
        }
        true
    };
    caller.work(&mut has_answer, until);
    received
}

/// The calls beside reads and swaps. A caller waits for each.
pub(crate) trait SwapServer: SwapIo {
    /// The queue whose questions waiting callers answer, if the store has one.
    fn callers(&self) -> Option<Arc<dyn CallerQueue>> {
        None
    }

    /// True if the store can list its keys.
    fn scans(&self) -> bool {
        true
    }

    /// Checks that the store answers.
    fn ping(self: Arc<Self>, deadline: Instant) -> Result<()>;

    /// The values of all keys that begin with these bytes and have that length, with the clock of the store.
    fn scan(self: Arc<Self>, prefix: &[u8], length: usize, deadline: Instant) -> Result<(u64, Vec<Vec<u8>>)>;

    /// Deletes all keys that begin with these bytes and have that length, each in at most `timeout`. It ends although others
    /// write them, and returns the first of those that are there again.
    fn delete(self: Arc<Self>, prefix: &[u8], length: usize, timeout: Duration) -> Result<Vec<Vec<u8>>>;

    fn close(&self);
}

/// A store that reads and swaps values.
pub(crate) struct SwapStore<D> {
    io: Arc<D>,
    engine: PerProcess<SwapEngine>,
    names: KeyNames,
    timeout: Duration,
    log: Arc<Log>,
    closed: AtomicBool,
}

impl<D: SwapServer> SwapStore<D> {
    pub(crate) fn new(io: D, names: KeyNames, timeout: Duration, log: Arc<Log>) -> Self {
        Self { io: Arc::new(io), engine: PerProcess::new(), names, timeout, log, closed: AtomicBool::new(false) }
    }

    fn engine(&self) -> Result<Arc<ProcessValue<SwapEngine>>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed"));
        }
        self.engine.get_or_try_init(|| SwapEngine::start(Arc::clone(&self.io)))
    }

    fn key(&self, entry: &Entry<'_>) -> StoredKey {
        StoredKey::new(&self.names, entry.plan.policy.name(), entry.key)
    }

    fn deadline(&self, given: Option<Instant>) -> Instant {
        let end = Instant::now() + self.timeout;
        given.map_or(end, |deadline| deadline.min(end))
    }

    /// Makes a call, and waits for its answer if its caller does.
    fn call<T: Send + 'static>(
        &self,
        entries: Vec<(OwnedEntry, StoredKey)>,
        together: bool,
        context: &CallContext<'_, T>,
        states: &LayerStates,
        recipient: impl FnOnce(Caller<T>) -> GroupRecipient,
    ) -> Option<Result<T>> {
        let stores = |entry: &OwnedEntry| !matches!(entry.operation, Operation::Peek { .. } | Operation::Clear);
        let mut stored = entries.iter().map(|(entry, _)| entry).filter(|entry| stores(entry));
        if let Err(error) = stored.try_for_each(|entry| self.accepts(&entry.plan)) {
            return Some(Err(error));
        }
        let deadline = self.deadline(context.deadline);
        let (completion, answer): (Completion<T>, _) = match context.waits {
            Waits::Never => return None,
            Waits::Later(make) => (make(*states), None),
            Waits::Here => {
                let (completion, answer) = awaited();
                (waking(completion, self.io.callers()), Some(answer))
            }
        };
        let engine = match self.engine() {
            Ok(engine) => engine,
            Err(error) => return Some(Err(error)),
        };
        let caller = answer.as_ref().and_then(|_| self.io.callers()).map(WaitingCaller::enter);
        let recipient = recipient(Caller::new(completion));
        engine.submit(SubmittedGroup { entries, together, now: context.now, deadline, recipient });
        let late = || Error::new(ErrorKind::StoreTimeout, "the store did not answer in time");
        Some(received(&answer?, caller.as_ref(), deadline + GRACE).unwrap_or_else(|| Err(late())))
    }

    /// The key of the note about an override, beside the value of its key. The notes of a policy share a prefix.
    fn note_key(&self, plan: &Plan, key: &str) -> StoredKey {
        let mut name = self.note_prefix(plan);
        name.extend_from_slice(&self.names.hasher().update(key.as_bytes()).finalize().as_bytes()[..StoredKey::DIGEST]);
        StoredKey::of_bytes(&name)
    }

    fn note_prefix(&self, plan: &Plan) -> Vec<u8> {
        let policy = self.names.hasher().update(plan.policy.name().as_bytes()).finalize();
        [b"o:", self.names.prefix.as_bytes(), &policy.as_bytes()[..StoredKey::DIGEST]].concat()
    }

    fn stored_overrides(&self, plan: &Plan, now: Option<u64>) -> Result<(u64, Vec<StoredOverride>)> {
        let prefix = self.note_prefix(plan);
        let length = prefix.len() + StoredKey::DIGEST;
        let (clock, values) = Arc::clone(&self.io).scan(&prefix, length, self.deadline(None))?;
        let now = now.unwrap_or(clock);
        let notes = values.iter().filter_map(|bytes| StoredValue::read(bytes));
        let overrides = notes.filter_map(|note| stored_override(note.value, note.appendix, plan, now));
        Ok((now, overrides.collect()))
    }
}

impl<D: SwapServer> Store for SwapStore<D> {
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        states.deadline = Some(self.deadline(context.deadline));
        let context = CallContext { deadline: states.deadline, ..context };
        let entries = vec![(OwnedEntry::from(entry), self.key(entry))];
        let result = self.call(entries, false, &context, states, GroupRecipient::One)?;
        Some(self.finish(entry, context.now, states, result))
    }

    fn finish(
        &self,
        _: &Entry<'_>,
        _: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        result.map(|answer| answer.within(states.deadline))
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        let entries = entries.iter().map(|entry| (OwnedEntry::from(entry), self.key(entry))).collect();
        self.call(entries, true, &context, states, GroupRecipient::All)
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.engine()?;
        Arc::clone(&self.io).ping(self.deadline(deadline))
    }

    fn clear_all(&self) -> Result<()> {
        self.engine()?;
        let prefix = self.names.prefix.as_bytes();
        let written = Arc::clone(&self.io).delete(prefix, prefix.len() + StoredKey::DIGEST, self.timeout)?;
        let notes = [b"o:", prefix].concat();
        Arc::clone(&self.io).delete(&notes, notes.len() + 2 * StoredKey::DIGEST, self.timeout)?;
        if !written.is_empty() {
            let digest =
                |key: &Vec<u8>| key[prefix.len()..].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let digests: Vec<String> = written.iter().map(digest).collect();
            self.log.warn(&format!(
                "clear_all has ended, but calls wrote keys meanwhile. These have usage again, and perhaps more: {}",
                digests.join(", ")
            ));
        }
        Ok(())
    }

    /// The note is there as long as the override is in force.
    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let Operation::Override(change) = &entry.operation else { return Ok(()) };
        let plan = entry.plan;
        if !change.text.is_empty() && self.io.scans() {
            self.engine()?;
            let (_, others) = self.stored_overrides(plan, now)?;
            if others.len() >= MAX_OVERRIDDEN_KEYS && others.iter().all(|other| other.key != change.key) {
                return Err(Error::too_many_overrides(plan.policy.name(), MAX_OVERRIDDEN_KEYS));
            }
        }
        let mut keys = [self.note_key(plan, entry.key), self.key(entry)];
        if change.text.is_empty() {
            keys.reverse();
        }
        keys.into_iter().try_for_each(|key| {
            let (entries, context) = (vec![(OwnedEntry::from(entry), key)], CallContext::at(now));
            let answer = self.call(entries, false, &context, &LayerStates::default(), GroupRecipient::One);
            answer.unwrap_or_else(|| Ok(Answer::default())).map(drop)
        })
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.engine()?;
        let (now, overrides) = self.stored_overrides(entry.plan, now)?;
        Ok(Answer::of_overrides(overrides, now))
    }

    fn accepts(&self, plan: &Plan) -> Result<()> {
        let (needed, most) = (plan.stored.max_whole, self.io.promises().max_value);
        if needed <= most {
            return Ok(());
        }
        Err(Error::policy(format!(
            "the policy {:?} needs up to {} kB for each key, and this store keeps at most {} kB: use sliding-window in place of \
             sliding-log, smaller counts, or a shorter journal",
            plan.policy.name(),
            needed.div_ceil(1024),
            most / 1024
        )))
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.io.close();
    }
}
