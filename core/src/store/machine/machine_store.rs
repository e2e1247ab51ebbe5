//! The store in a file as limiters use it: how its callers wait for a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::locked_shard::LockedShard;
use super::waiting_calls::{WaitingCalls, waiting_call};
use super::{Hindrance, Machine};
use crate::error::{Error, Result};
use crate::plan::{MAX_OVERRIDDEN_KEYS, Plan};
use crate::process::lock::InheritedMutex;
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry, borrowed, owned};

/// A brief wait for a lock, also on the thread of a caller that goes on: longer than the write of a record takes.
pub(super) const BRIEFLY: Duration = Duration::from_micros(200);

/// The most policies that may set overrides without a count at each change.
const COUNTED_POLICIES: usize = 1_000;
/// The processes that may set overrides at once without exceeding the limit of a policy.
const SETTING_PROCESSES: usize = 16;

/// A file, and the calls that wait for a lock of it.
pub(crate) struct MachineStore {
    machine: Arc<Machine>,
    waiting: WaitingCalls,
    /// How many overrides this process may set, by the identity of their policy, before it counts those of all
    /// processes again. For a count it reads the whole file.
    uncounted: InheritedMutex<HashMap<u128, usize>>,
}

impl MachineStore {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine: Arc::new(machine), waiting: WaitingCalls::default(), uncounted: InheritedMutex::default() }
    }

    /// Fails if a policy has as many overrides as it may.
    fn check_room(&self, plan: &Plan, key: &str, now: Option<u64>) -> Result<()> {
        if let Some(left @ 1..) = self.uncounted.lock().get_mut(&plan.identity) {
            *left -= 1;
            return Ok(());
        }
        let others = self.machine.stored_overrides(plan, self.machine.now(now))?;
        let room = MAX_OVERRIDDEN_KEYS.saturating_sub(others.len());
        if room == 0 && others.iter().all(|other| other.key != key) {
            return Err(Error::too_many_overrides(plan.policy.name(), MAX_OVERRIDDEN_KEYS));
        }
        let mut uncounted = self.uncounted.lock();
        if uncounted.len() >= COUNTED_POLICIES {
            uncounted.clear();
        }
        uncounted.insert(plan.identity, room.saturating_sub(1) / SETTING_PROCESSES);
        Ok(())
    }

    /// Answers a call that may wait for a lock: briefly on this thread, and then on another if its caller goes on.
    #[cold]
    fn wait<T: 'static, A>(
        &self,
        context: &CallContext<'_, T>,
        states: &LayerStates,
        shards: Vec<usize>,
        ask: impl Fn(&Machine, Option<u64>, Instant) -> Result<T, Hindrance>,
        ask_later: impl FnOnce() -> A,
    ) -> Option<Result<T, Hindrance>>
    where
        A: Fn(&Machine, Option<u64>, Instant) -> Result<T, Hindrance> + Send + 'static,
    {
        let (machine, begun, given) = (&self.machine, Instant::now(), context.now);
        let end = begun + machine.timeout;
        let deadline = context.deadline.map_or(end, |deadline| deadline.min(end));
        let here = match context.waits {
            Waits::Never => begun,
            Waits::Here => deadline,
            Waits::Later(_) => deadline.min(begun + BRIEFLY),
        };
        match (ask(machine, given, here), context.waits) {
            (Err(Hindrance::Locked), Waits::Never) => None,
            (Err(Hindrance::Locked), Waits::Later(make)) => {
                let call = || {
                    let ask = ask_later();
                    let ask = move |machine: &Machine| ask(machine, given, Instant::now());
                    let error = move |machine: &Machine, why| machine.error(why, shards.iter().copied());
                    waiting_call(deadline, make(*states), ask, error)
                };
                self.waiting.add(machine, call).err().map(|error| Err(Hindrance::Refused(error)))
            }
            (result, _) => Some(result),
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
        let result = match machine.answer(entry, context.now, None) {
            // Its caller asks again and waits.
            Err(Hindrance::Locked) if context.waits.is_never() => return None,
            Err(Hindrance::Locked) => {
                let ask = |machine: &Machine, now, deadline| machine.answer(entry, now, Some(deadline));
                let ask_later = || {
                    let owned = OwnedEntry::from(entry);
                    move |machine: &Machine, now, deadline| machine.answer(&owned.entry(), now, Some(deadline))
                };
                self.wait(&context, states, vec![machine.place(entry).shard], ask, ask_later)?
            }
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
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        let machine = &self.machine;
        if let Err(error) = machine.check_open() {
            return Some(Err(error));
        }
        let shards: Vec<usize> = entries.iter().map(|entry| machine.place(entry).shard).collect();
        let ask = |machine: &Machine, now, deadline| machine.answer_all(entries, now, deadline);
        let ask_later = || {
            let owned = owned(entries);
            move |machine: &Machine, now, deadline| machine.answer_all(&borrowed(&owned), now, deadline)
        };
        let result = self.wait(&context, states, shards.clone(), ask, ask_later)?;
        machine.report();
        Some(result.map_err(|hindrance| machine.error(hindrance, shards.into_iter())))
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.machine.check_open()?;
        let deadline = deadline.unwrap_or_else(|| self.machine.deadline());
        self.machine.each_shard(|| deadline, |_| Ok(()))
    }

    fn clear_all(&self) -> Result<()> {
        self.machine.check_open()?;
        let machine = &self.machine;
        let remove = |locked: &LockedShard<'_>| locked.remove_all(|name| machine.names.has(name));
        // Damaged records go too. They may be of another prefix, so there is a warning.
        let clear = |locked: &LockedShard<'_>| {
            remove(locked).or_else(|_| {
                machine.repair(locked);
                remove(locked)
            })
        };
        let cleared = machine.each_shard(|| machine.deadline(), clear);
        machine.report();
        cleared
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let Operation::Override(change) = &entry.operation else { return Ok(()) };
        if !change.text.is_empty() {
            self.check_room(entry.plan, &change.key, now)?;
        }
        self.begin(entry, CallContext::at(now), &mut LayerStates::default())
            .unwrap_or_else(|| Ok(Answer::default()))
            .map(drop)
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let now = self.machine.now(now);
        let overrides = self.machine.stored_overrides(entry.plan, now)?;
        Ok(Answer::of_overrides(overrides, now.now))
    }

    fn close(&self) {
        self.machine.closed.store(true, Ordering::Relaxed);
    }
}
