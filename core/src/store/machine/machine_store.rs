//! The store in a file as limiters have it: how its callers wait for a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::waiting_calls::{WaitingCall, WaitingCalls};
use super::{Hindrance, Machine};
use crate::error::{Error, Result};
use crate::plan::MAX_OVERRIDDEN_KEYS;
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry};

/// For how long a caller that does not wait on its thread waits there all the same: longer than a record takes to be written.
const BRIEFLY: Duration = Duration::from_micros(200);

/// A file, and the calls that wait for a lock of it.
pub(crate) struct MachineStore {
    machine: Arc<Machine>,
    waiting: WaitingCalls,
}

impl MachineStore {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine: Arc::new(machine), waiting: WaitingCalls::default() }
    }

    /// Answers an entry whose lock is not free now. A caller that does not wait asks again as one that does.
    #[cold]
    fn answer_locked(
        &self,
        entry: &Entry<'_>,
        context: &CallContext<'_>,
        states: &LayerStates,
    ) -> Option<Result<Answer, Hindrance>> {
        let (machine, now) = (&self.machine, Instant::now());
        let deadline = context.deadline.unwrap_or(now + machine.timeout);
        match context.waits {
            Waits::Never => None,
            Waits::Here => Some(machine.answer(entry, machine.now(context.now), Some(deadline))),
            Waits::Later(make) => {
                match machine.answer(entry, machine.now(context.now), Some(deadline.min(now + BRIEFLY))) {
                    Err(Hindrance::Locked) => {}
                    result => return Some(result),
                }
                let (entry, now) = (OwnedEntry::from(entry), context.now);
                let call = || WaitingCall { entry, now, deadline, completion: make(*states) };
                self.waiting.add(machine, call).err().map(|error| Err(Hindrance::Refused(error)))
            }
        }
    }
}

impl Store for MachineStore {
    #[inline]
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        let machine = &self.machine;
        if let Err(error) = machine.check_open() {
            return Some(Err(error));
        }
        let result = match machine.answer(entry, machine.now(context.now), None) {
            Err(Hindrance::Locked) => self.answer_locked(entry, &context, states)?,
            result => result,
        };
        machine.report();
        match result {
            Ok(answer) => Some(Ok(answer)),
            Err(hindrance) => Some(Err(machine.error_about(entry, hindrance))),
        }
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        _: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        if let Err(error) = self.machine.check_open() {
            return Some(Err(error));
        }
        let deadline = match context.waits {
            Waits::Never => Instant::now(),
            _ => context.deadline.unwrap_or_else(|| self.machine.deadline()),
        };
        let result = self.machine.answer_all(entries, self.machine.now(context.now), deadline);
        if matches!((&result, context.waits), (Err(Hindrance::Locked), Waits::Never)) {
            return None;
        }
        let shards = entries.iter().map(|entry| self.machine.place(entry).shard);
        let result = result.map_err(|hindrance| self.machine.error(hindrance, shards));
        self.machine.report();
        Some(result)
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.machine.check_open()?;
        let deadline = deadline.unwrap_or_else(|| self.machine.deadline());
        self.machine.each_shard(|| deadline, |_| Ok(()))
    }

    fn clear_all(&self) -> Result<()> {
        self.machine.check_open()?;
        let machine = &self.machine;
        machine.each_shard(|| machine.deadline(), |locked| locked.remove_all(|name| machine.names.has(name)))
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let Operation::Override(change) = &entry.operation else { return Ok(()) };
        if !change.text.is_empty() {
            let others = self.machine.own_numbers(entry.plan, self.machine.now(now))?;
            if others.len() >= MAX_OVERRIDDEN_KEYS && others.iter().all(|other| other.key != change.key) {
                return Err(Error::too_many_overrides(entry.plan.policy.name(), MAX_OVERRIDDEN_KEYS));
            }
        }
        self.begin(entry, CallContext::at(now), &mut LayerStates::default())
            .unwrap_or_else(|| Ok(Answer::default()))
            .map(drop)
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let now = self.machine.now(now);
        let overrides = self.machine.own_numbers(entry.plan, now)?;
        Ok(Answer::of_overrides(overrides, now))
    }

    fn close(&self) {
        self.machine.closed.store(true, Ordering::Relaxed);
    }
}
