//! The steps of the machine: which groups travel together, and what each answer of the store means for them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::decision::Circumstances;
use super::known_values::KnownValues;
use super::store_clock::StoreClock;
use super::unit::{CallGroup, Decided, GroupAnswers, GroupId, SwapAttempt, SwapUnit};
use super::value::Mark;
use super::{CallId, Change, ChangeSet, Io, Promises};
use crate::error::{Error, ErrorKind};
use crate::store::MAX_ENTRIES;
use crate::store::request::OwnedEntry;
use crate::store::stored_key::StoredKey;

/// A unit that has lost so many swaps asks for the lock of its rows.
const LOSSES_BEFORE_LOCK: u8 = 3;
/// So many units travel in two halves.
const LEAST_TO_SPLIT: usize = 32;

/// A question that the store has not answered.
pub(super) struct CallInFlight {
    pub(super) sent: Instant,
    pub(super) phase: CallPhase,
}

pub(super) enum CallPhase {
    Reading {
        units: Vec<SwapUnit>,
        locks: bool,
    },
    Swapping {
        units: Vec<(SwapUnit, Vec<Change>)>,
        lock: Option<RowLock>,
    },
    /// A read that clears up the outcome of a swap.
    ClearingUp {
        unit: SwapUnit,
        error: Error,
    },
}

/// The lock of a unit's rows.
#[derive(Clone, Copy)]
pub(super) struct RowLock {
    /// The read that took it.
    pub(super) call: CallId,
    /// How long that read took.
    pub(super) took: Duration,
}

/// Swaps that are ready to be sent.
pub(super) struct ReadySwap {
    pub(super) units: Vec<(SwapUnit, ChangeSet)>,
    pub(super) lock: Option<RowLock>,
}

/// Decides calls on a store that can read and swap values. `R` names the recipient of an answer.
pub(crate) struct SwapMachine<R> {
    pub(super) promises: Promises,
    max_calls: usize,
    pub(super) groups: HashMap<GroupId, CallGroup<R>>,
    /// The groups that are in no call, in the order in which they came.
    waiting: VecDeque<GroupId>,
    /// The keys that are in a call.
    pub(super) busy: HashSet<StoredKey>,
    pub(super) known: KnownValues,
    pub(super) calls: HashMap<CallId, CallInFlight>,
    pub(super) swaps: VecDeque<ReadySwap>,
    /// Units whose last swap has an unknown outcome.
    pub(super) unclear: Vec<(SwapUnit, Error)>,
    /// Units to be read again, of which a lost swap may still arrive.
    pub(super) unresolved: Vec<SwapUnit>,
    pub(super) clock: StoreClock,
    make_mark: Box<dyn FnMut() -> Mark + Send>,
    last_id: u64,
    pub(super) completed: Vec<(R, GroupAnswers)>,
}

impl<R> SwapMachine<R> {
    /// `max_calls` is how many questions may be on the way at once.
    pub(crate) fn new(promises: Promises, max_calls: usize, make_mark: Box<dyn FnMut() -> Mark + Send>) -> Self {
        Self {
            promises,
            max_calls,
            groups: HashMap::new(),
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            known: KnownValues::default(),
            calls: HashMap::new(),
            swaps: VecDeque::new(),
            unclear: Vec::new(),
            unresolved: Vec::new(),
            clock: StoreClock::default(),
            make_mark,
            last_id: 0,
            completed: Vec::new(),
        }
    }

    /// Takes the entries of a call. `now` is the time to decide by, if it is not that of the store.
    pub(crate) fn submit(
        &mut self,
        entries: Vec<(OwnedEntry, StoredKey)>,
        together: bool,
        now: Option<u64>,
        deadline: Instant,
        recipient: R,
    ) {
        let (entries, keys): (Vec<_>, SmallVec<_>) = entries.into_iter().unzip();
        let group = CallGroup {
            entries: Arc::from(entries),
            keys,
            together,
            now,
            deadline,
            recipient: Some(recipient),
            lost: 0,
            failure: None,
        };
        let id = self.next_id();
        self.groups.insert(id, group);
        self.waiting.push_back(id);
    }

    /// The answers that are known since it was asked last.
    pub(crate) fn take_completed(&mut self) -> Vec<(R, GroupAnswers)> {
        std::mem::take(&mut self.completed)
    }

    /// Ends all groups that are not answered, and returns their recipients.
    pub(crate) fn close(&mut self) -> Vec<R> {
        self.groups.drain().filter_map(|(_, group)| group.recipient).collect()
    }

    /// True if no group waits for an answer.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.groups.values().all(|group| group.recipient.is_none())
    }

    const fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The next thing to do. Its owner asks until it has to wait.
    pub(crate) fn poll_io(&mut self, now: Instant) -> Io {
        self.expire(now);
        if self.calls.len() < self.max_calls
            && let Some(io) = self.next_question(now)
        {
            return io;
        }
        self.next_moment(now).map_or(Io::Idle, Io::WaitUntil)
    }

    fn next_question(&mut self, now: Instant) -> Option<Io> {
        if !self.unclear.is_empty() {
            return Some(self.clear_up(now));
        }
        if let Some(io) = self.next_swap(now) {
            return Some(io);
        }
        let (mut reads, mut swaps) = (std::mem::take(&mut self.unresolved), Vec::new());
        let mut units = self.take_units(now);
        // The store works on one half while the callers of the other one take their answers.
        if units.len() >= LEAST_TO_SPLIT && self.calls.is_empty() && self.max_calls > 1 {
            self.put_back(units.split_off(units.len() / 2));
        }
        for mut unit in units {
            match self.try_swap_first(&mut unit, now) {
                Some(set) => swaps.push((unit, set)),
                None => reads.push(unit),
            }
        }
        if !swaps.is_empty() {
            self.swaps.push_back(ReadySwap { units: swaps, lock: None });
        }
        let (mut asked, mut later): (Vec<_>, Vec<_>) = reads.into_iter().partition(|unit| self.wants_lock(unit));
        let locks = !asked.is_empty();
        if locks {
            // A locked unit has a call of its own: while it waits for its lock, the others go on.
            later.extend(asked.drain(1..));
        } else {
            std::mem::swap(&mut asked, &mut later);
        }
        later.into_iter().for_each(|unit| self.put_aside(unit));
        if asked.is_empty() { self.next_swap(now) } else { Some(self.send_read(asked, locks, now)) }
    }

    /// Sends a swap that is ready. A unit of which a group was answered meanwhile is decided again, without that group.
    fn next_swap(&mut self, now: Instant) -> Option<Io> {
        loop {
            let ReadySwap { units, lock } = self.swaps.pop_front()?;
            let is_open = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.recipient.is_some());
            let (units, stale): (Vec<_>, Vec<_>) =
                units.into_iter().partition(|(unit, _)| unit.groups.iter().all(is_open));
            for (mut unit, _) in stale {
                unit.attempts.pop();
                self.repeat(unit, None);
            }
            if !units.is_empty() || lock.is_some() {
                return Some(self.send_swap(ReadySwap { units, lock }, now));
            }
        }
    }

    fn wants_lock(&self, unit: &SwapUnit) -> bool {
        let is_contended = |key: &StoredKey| self.known.get(key).is_some_and(|known| known.is_contended);
        let lost = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.lost >= LOSSES_BEFORE_LOCK);
        self.promises.locks && (unit.groups.iter().any(lost) || unit.keys.iter().any(is_contended))
    }

    fn needs_epoch(&self, unit: &SwapUnit) -> bool {
        unit.needs_epoch(|id| self.groups.get(&id))
    }

    /// Takes the groups whose keys are free and at no rest. Groups of one key keep their order.
    fn take_units(&mut self, now: Instant) -> Vec<SwapUnit> {
        let mut units: Vec<SwapUnit> = Vec::new();
        let (mut left, mut kept_keys, mut count) = (VecDeque::new(), HashSet::new(), 0);
        for id in std::mem::take(&mut self.waiting) {
            let Some(group) = self.groups.get(&id) else { continue };
            let is_free =
                |key: &StoredKey| !self.busy.contains(key) && !kept_keys.contains(key) && !self.rests(key, now);
            if count + group.keys.len() > MAX_ENTRIES || !group.keys.iter().all(is_free) {
                kept_keys.extend(group.keys.iter().cloned());
                left.push_back(id);
                continue;
            }
            count += group.keys.len();
            // A group that shares keys with several units makes one of them.
            let mut unit = SwapUnit { groups: Vec::new(), keys: Vec::new(), values: Vec::new(), attempts: Vec::new() };
            units.retain_mut(|other| {
                let is_apart = !other.keys.iter().any(|key| group.keys.contains(key));
                if !is_apart {
                    unit.groups.append(&mut other.groups);
                    unit.keys.append(&mut other.keys);
                }
                is_apart
            });
            unit.groups.push(id);
            unit.groups.sort_unstable();
            for key in &group.keys {
                if !unit.keys.contains(key) {
                    unit.keys.push(key.clone());
                }
            }
            units.push(unit);
        }
        self.waiting = left;
        self.busy.extend(units.iter().flat_map(|unit| unit.keys.iter().cloned()));
        units
    }

    /// Puts back units before anything was asked about them.
    fn put_back(&mut self, units: impl IntoIterator<Item = SwapUnit>) {
        for unit in units {
            unit.keys.iter().for_each(|key| {
                self.busy.remove(key);
            });
            self.waiting.extend(unit.groups);
        }
        self.waiting.make_contiguous().sort_unstable();
    }

    /// Puts the groups of a unit back in front of those that came later. One whose swap may still arrive stays a unit, so that
    /// this is noticed.
    pub(super) fn put_aside(&mut self, unit: SwapUnit) {
        if !unit.attempts.is_empty() {
            return self.unresolved.push(unit);
        }
        self.put_back([unit]);
    }

    /// The swap of a unit whose values this process wrote last, if the groups change any.
    fn try_swap_first(&mut self, unit: &mut SwapUnit, now: Instant) -> Option<ChangeSet> {
        if !self.promises.marks_are_versions || self.wants_lock(unit) || self.needs_epoch(unit) {
            return None;
        }
        let moment = self.clock.least(now)?;
        unit.values = unit.keys.iter().map(|key| Some(self.known.get(key)?.found.clone())).collect::<Option<_>>()?;
        self.decide(unit, moment, None)
    }

    /// Decides a unit on its values. The change set is to be swapped; without one nothing is written.
    pub(super) fn decide(&mut self, unit: &mut SwapUnit, moment: u64, epoch: Option<u64>) -> Option<ChangeSet> {
        let here = Circumstances { now: moment, epoch, max_value: self.promises.max_value };
        let Decided { answers, changes } = unit.decide(|id| self.groups.get(&id), here);
        let mark = (self.make_mark)();
        let replaces = changes.iter().map(|(index, _)| (*index, unit.version(*index).cloned())).collect();
        let has_changes = !changes.is_empty();
        let until = moment + self.clock.slack().as_micros() as u64;
        let set = unit.change_set(changes, mark, moment, until);
        unit.attempts.push(SwapAttempt { mark, replaces, answers });
        has_changes.then_some(set)
    }

    fn deadline_of<'a>(&self, units: impl Iterator<Item = &'a SwapUnit>, now: Instant) -> Instant {
        let groups = units.flat_map(|unit| &unit.groups).filter_map(|id| self.groups.get(id));
        groups.map(|group| group.deadline).max().unwrap_or(now)
    }

    fn send_read(&mut self, units: Vec<SwapUnit>, locks: bool, now: Instant) -> Io {
        let keys = units.iter().flat_map(|unit| unit.keys.iter().cloned()).collect();
        let deadline = self.deadline_of(units.iter(), now);
        let needs_epoch = units.iter().any(|unit| self.needs_epoch(unit));
        let call = self.next_id();
        self.calls.insert(call, CallInFlight { sent: now, phase: CallPhase::Reading { units, locks } });
        Io::Read { call, keys, locks, needs_epoch, deadline }
    }

    fn send_swap(&mut self, ready: ReadySwap, now: Instant) -> Io {
        let deadline = self.deadline_of(ready.units.iter().map(|(unit, _)| unit), now);
        let call = self.next_id();
        let (mut units, mut sets) = (Vec::new(), Vec::new());
        for (unit, set) in ready.units {
            units.push((unit, set.changes.clone()));
            sets.push(set);
        }
        let lock = ready.lock;
        self.calls.insert(call, CallInFlight { sent: now, phase: CallPhase::Swapping { units, lock } });
        Io::Swap { call, sets, locked: lock.map(|lock| lock.call), deadline }
    }

    fn clear_up(&mut self, now: Instant) -> Io {
        let (unit, error) = self.unclear.swap_remove(0);
        let (keys, deadline) = (unit.keys.clone(), self.deadline_of(std::iter::once(&unit), now));
        let call = self.next_id();
        let phase = CallPhase::ClearingUp { unit, error };
        self.calls.insert(call, CallInFlight { sent: now, phase });
        Io::Read { call, keys, locks: false, needs_epoch: false, deadline }
    }

    /// The next moment at which a group expires or a key has rested.
    pub(super) fn next_moment(&self, now: Instant) -> Option<Instant> {
        let open = self.groups.values().filter(|group| group.recipient.is_some());
        let rests = self.waiting.iter().filter_map(|id| self.groups.get(id)).flat_map(|group| &group.keys);
        let rests = rests.filter_map(|key| self.known.get(key)?.rests_until).filter(|until| *until > now);
        open.map(|group| group.deadline).chain(rests).min()
    }

    /// Answers the groups whose time is over. One that was never in a swap has not run.
    fn expire(&mut self, now: Instant) {
        let is_over = |group: &CallGroup<R>| group.recipient.is_some() && group.deadline <= now;
        let over: Vec<GroupId> = self.groups.iter().filter(|(_, group)| is_over(group)).map(|(id, _)| *id).collect();
        if over.is_empty() {
            return;
        }
        let contended = self.contended_keys(now);
        for id in over {
            let is_waiting = self.waiting.contains(&id);
            let Some(group) = self.groups.get(&id) else { continue };
            let is_outrun = group.keys.iter().any(|key| contended.contains(key));
            let error = group.failure.clone().unwrap_or_else(|| if is_outrun { outrun() } else { timed_out() });
            self.answer(id, Err(if is_waiting || !self.is_swapped(id) { error.of_no_run() } else { error }));
            if is_waiting {
                self.waiting.retain(|other| *other != id);
                self.groups.remove(&id);
            }
        }
    }

    /// The keys that other processes were in the way of: one that rests, or one of a group that has lost a swap.
    fn contended_keys(&self, now: Instant) -> HashSet<StoredKey> {
        let has_lost = |group: &&CallGroup<R>| group.lost > 0 && group.failure.is_none();
        let of_losers = self.groups.values().filter(has_lost).flat_map(|group| &group.keys);
        let waiting = self.waiting.iter().filter_map(|id| self.groups.get(id)).flat_map(|group| &group.keys);
        of_losers.chain(waiting.filter(|key| self.rests(key, now))).cloned().collect()
    }

    /// True if the key is left to other processes until later.
    fn rests(&self, key: &StoredKey, now: Instant) -> bool {
        self.known.get(key).and_then(|known| known.rests_until).is_some_and(|until| until > now)
    }

    /// True if a swap of the group may have been done, or may still arrive.
    fn is_swapped(&self, id: GroupId) -> bool {
        let has = |unit: &SwapUnit, unsent: usize| unit.groups.contains(&id) && unit.attempts.len() > unsent;
        let in_call = self.calls.values().any(|call| match &call.phase {
            CallPhase::Swapping { units, .. } => units.iter().any(|(unit, _)| has(unit, 0)),
            CallPhase::Reading { units, .. } => units.iter().any(|unit| has(unit, 0)),
            CallPhase::ClearingUp { unit, .. } => has(unit, 0),
        });
        in_call
            || self.unclear.iter().any(|(unit, _)| has(unit, 0))
            || self.unresolved.iter().any(|unit| has(unit, 0))
            || self.swaps.iter().flat_map(|ready| &ready.units).any(|(unit, _)| has(unit, 1))
    }
}

fn timed_out() -> Error {
    Error::new(ErrorKind::StoreTimeout, "the store did not answer in time")
}

/// The error of a call that lost its swaps until its deadline.
fn outrun() -> Error {
    let message = "other processes changed the key faster each time, until the call had no time left: give it a longer timeout, or fewer processes one key";
    Error::new(ErrorKind::StoreTimeout, message).of_contention()
}
