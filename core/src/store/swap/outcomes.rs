//! The effect of each answer of the store on the groups that asked.

use std::time::{Duration, Instant};

use super::known_values::KnownValue;
use super::machine::{CallInFlight, CallPhase, ReadySwap, RowLock, SwapMachine};
use super::unit::{GroupAnswers, GroupId, SwapUnit};
use super::value::{Mark, StoredValue};
use super::{CallId, Change, Event, FoundValue, SwapResult, Version};
use crate::error::{Error, ErrorKind};

/// The longest rest of a key behind a lock.
const LONGEST_REST: Duration = Duration::from_millis(20);

impl<R> SwapMachine<R> {
    /// Takes the answer to a question.
    pub(crate) fn handle(&mut self, call: CallId, event: Event, now: Instant) {
        let Some(CallInFlight { sent, phase }) = self.calls.remove(&call) else { return };
        if let Event::Read { clock, .. } | Event::Swapped { clock, .. } = &event {
            self.clock.heard(*clock, sent, now);
        }
        match (phase, event) {
            (CallPhase::Reading { units, locks }, Event::Read { clock, epoch, values }) => {
                let lock = locks.then(|| RowLock { call, took: now.saturating_duration_since(sent) });
                self.take_read(units, lock, (clock, epoch), values);
            }
            (CallPhase::ClearingUp { unit, error }, Event::Read { values, .. }) => {
                self.take_cleared(unit, &error, values)
            }
            (CallPhase::Swapping { units, lock }, Event::Swapped { results, .. }) => {
                let rest = self.rest_after(lock, now.saturating_duration_since(sent));
                self.take_swapped(units, results, lock.is_some(), now + rest);
            }
            (CallPhase::Swapping { units, .. }, Event::Unknown(error)) => {
                for (unit, _) in units {
                    self.unclear.push((unit, error.clone()));
                }
            }
            (CallPhase::Swapping { units, .. }, Event::NotRun(error)) => {
                let without_last = |(mut unit, _): (SwapUnit, Vec<Change>)| {
                    unit.attempts.pop();
                    unit
                };
                self.take_failed(units.into_iter().map(without_last).collect(), &error);
            }
            (CallPhase::Reading { units, .. }, Event::NotRun(error) | Event::Unknown(error)) => {
                self.take_failed(units, &error)
            }
            (CallPhase::ClearingUp { unit, error }, Event::NotRun(_) | Event::Unknown(_)) => {
                self.fail(vec![unit], &error)
            }
            (CallPhase::Swapping { units, .. }, Event::Read { .. }) => {
                self.fail(units.into_iter().map(|(unit, _)| unit).collect(), &confused());
            }
            (CallPhase::Reading { units, .. }, Event::Swapped { .. }) => self.fail(units, &confused()),
            (CallPhase::ClearingUp { unit, .. }, Event::Swapped { .. }) => self.fail(vec![unit], &confused()),
        }
    }

    fn take_read(
        &mut self,
        units: Vec<SwapUnit>,
        lock: Option<RowLock>,
        (clock, epoch): (Option<u64>, Option<u64>),
        values: Vec<Option<FoundValue>>,
    ) {
        let mut values = values.into_iter();
        let mut swaps = Vec::new();
        for mut unit in units {
            unit.values = values.by_ref().take(unit.keys.len()).collect();
            let Some(mut unit) = self.unless_landed(unit, false, &overtaken()) else { continue };
            let moment = clock.unwrap_or_else(wall_clock);
            match self.decide(&mut unit, moment, epoch) {
                Some(set) => swaps.push((unit, set)),
                None => {
                    let attempt = unit.attempts.pop();
                    self.complete(unit, attempt.map(|attempt| attempt.answers).unwrap_or_default());
                }
            }
        }
        if !swaps.is_empty() || lock.is_some() {
            self.swaps.push_back(ReadySwap { units: swaps, lock });
        }
    }

    /// How long a key rests that other processes write too. Without a lock, one of them needs a round trip to come first. Locks are
    /// given in turn. Then a process that has waited longer than it held the lock rests for the difference: it is near, and
    /// the line is shorter for one that is far away.
    fn rest_after(&self, lock: Option<RowLock>, held: Duration) -> Duration {
        lock.map_or(self.clock.round_trip(), |lock| lock.took.saturating_sub(2 * held).min(LONGEST_REST))
    }

    fn take_swapped(
        &mut self,
        units: Vec<(SwapUnit, Vec<Change>)>,
        results: Vec<SwapResult>,
        with_lock: bool,
        rests_until: Instant,
    ) {
        let mut results = results.into_iter();
        for (mut unit, changes) in units {
            let of_unit: Vec<SwapResult> = results.by_ref().take(changes.len()).collect();
            if of_unit.len() < changes.len() {
                self.fail(vec![unit], &confused());
                continue;
            }
            if of_unit.iter().all(|result| *result == SwapResult::Done) {
                let Some(attempt) = unit.attempts.pop() else { continue };
                self.note_written(changes, attempt.mark, with_lock, rests_until);
                self.complete(unit, attempt.answers);
                continue;
            }
            // The store has returned the values that stand there, so the next decision needs no read.
            for (change, result) in changes.iter().zip(of_unit) {
                let index = unit.keys.iter().position(|key| *key == change.key);
                if let (Some(index), SwapResult::Lost(found)) = (index, result) {
                    unit.values[index] = found;
                }
            }
            if let Some(unit) = self.unless_landed(unit, true, &overtaken()) {
                self.repeat(unit, None);
            }
        }
    }

    /// Reads the values that a swap with an unknown outcome has left.
    fn take_cleared(&mut self, mut unit: SwapUnit, error: &Error, values: Vec<Option<FoundValue>>) {
        unit.values = values;
        let Some(unit) = self.unless_landed(unit, false, error) else { return };
        if error.kind() == ErrorKind::StoreRejected {
            self.fail(vec![unit], error);
        } else {
            // The lost swap may still arrive. Its mark stays among the attempts of the unit.
            self.repeat(unit, Some(error));
        }
    }

    /// Returns a unit whose values were just read, unless the mark of one of its attempts stands there. Then that attempt was done.
    /// If one may have been done and replaced, the outcome stays unknown, and the unit ends with the error. `refused`: the last was not done,
    /// unless it arrived twice and was refused because of itself.
    fn unless_landed(&mut self, mut unit: SwapUnit, refused: bool, error: &Error) -> Option<SwapUnit> {
        if unit.values.len() != unit.keys.len() {
            self.fail(vec![unit], &confused());
            return None;
        }
        self.note_found(&unit);
        let marks: Vec<Mark> = unit.values.iter().flatten().filter_map(mark_of).collect();
        let Some(at) = unit.attempts.iter().position(|attempt| marks.contains(&attempt.mark)) else {
            if refused {
                unit.attempts.pop();
            }
            if !unit.may_have_landed() {
                return Some(unit);
            }
            self.fail(vec![unit], error);
            return None;
        };
        let answers = unit.attempts.swap_remove(at).answers;
        self.complete(unit, answers);
        None
    }

    /// Has the groups of a unit decided again, after a loss or a failure.
    pub(super) fn repeat(&mut self, unit: SwapUnit, failure: Option<&Error>) {
        for id in &unit.groups {
            if let Some(group) = self.groups.get_mut(id) {
                group.lost = group.lost.saturating_add(1);
                group.failure = failure.cloned();
            }
        }
        self.put_aside(unit);
    }

    /// Takes a call that has not run. It is asked again if another process was in its way.
    fn take_failed(&mut self, units: Vec<SwapUnit>, error: &Error) {
        if error.is_contention() {
            units.into_iter().for_each(|unit| self.repeat(unit, None));
        } else {
            self.fail(units, error);
        }
    }

    /// Remembers the values that were found.
    fn note_found(&mut self, unit: &SwapUnit) {
        for (key, found) in unit.keys.iter().zip(&unit.values) {
            let known = self.known.get(key).cloned().unwrap_or_default();
            let mark = found.as_ref().and_then(mark_of);
            let is_shared = known.is_shared || (known.own.is_some() && mark != known.own);
            self.known.set(key.clone(), KnownValue { found: found.clone(), is_shared, ..known });
        }
    }

    /// Remembers the values that were written. A key that others write too rests.
    fn note_written(&mut self, changes: Vec<Change>, mark: Mark, with_lock: bool, rests_until: Instant) {
        for change in changes {
            let known = self.known.get(&change.key).cloned().unwrap_or_default();
            let is_contended = with_lock && known.is_shared;
            let rests_until = known.is_shared.then_some(rests_until);
            let found = change.data.map(|data| FoundValue { version: Version::from_slice(&mark), data });
            if found.is_none() || !self.promises.marks_are_versions {
                self.known.forget(&change.key);
                continue;
            }
            let known = KnownValue { found, own: Some(mark), is_shared: false, is_contended, rests_until };
            self.known.set(change.key, known);
        }
    }

    /// Answers the groups of a unit, and frees its keys.
    fn complete(&mut self, unit: SwapUnit, answers: Vec<(GroupId, GroupAnswers)>) {
        for (id, answer) in answers {
            self.answer(id, answer);
        }
        debug_assert!(unit.groups.iter().all(|id| self.groups.get(id).is_none_or(|group| group.recipient.is_none())));
        self.release(unit);
    }

    pub(super) fn answer(&mut self, id: GroupId, answer: GroupAnswers) {
        if let Some(group) = self.groups.get_mut(&id)
            && let Some(recipient) = group.recipient.take()
        {
            self.completed.push((recipient, answer));
        }
    }

    /// Frees the keys of a unit that is done.
    fn release(&mut self, unit: SwapUnit) {
        unit.groups.iter().for_each(|id| {
            self.groups.remove(id);
        });
        unit.keys.iter().for_each(|key| {
            self.busy.remove(key);
        });
    }

    /// Answers units with an error. One without a swap that may have been done has certainly not run.
    fn fail(&mut self, units: Vec<SwapUnit>, error: &Error) {
        for unit in units {
            let error = if unit.attempts.is_empty() { error.clone().of_no_run() } else { error.clone() };
            unit.groups.iter().for_each(|id| self.answer(*id, Err(error.clone())));
            unit.keys.iter().for_each(|key| self.known.forget(key));
            self.release(unit);
        }
    }
}

fn mark_of(found: &FoundValue) -> Option<Mark> {
    StoredValue::read(&found.data).map(|stored| stored.mark)
}

fn wall_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

/// The error of a call whose swap may have been done before another process changed the key.
fn overtaken() -> Error {
    let message = "an answer of the store was lost, and the key has changed since: the call may have been counted";
    Error::new(ErrorKind::StoreTimeout, message)
}

fn confused() -> Error {
    Error::new(ErrorKind::StoreRejected, "the store answered another question than it was asked")
}
