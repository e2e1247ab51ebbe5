//! The store of a simulation. Only it knows the true time.

use std::collections::HashMap;

use super::super::decision::{Circumstances, WorkingValue, decide};
use super::super::{CallId, Change, ChangeSet, Event, FoundValue, SwapResult, Version};
use crate::error::{Error, ErrorKind};
use crate::plan::Plan;
use crate::store::key_names::KeyNames;
use crate::store::key_value_store::DEFAULT_MAX_VALUE;
use crate::store::request::{Entry, Operation};
use crate::store::stored_key::StoredKey;

/// A transaction that has locked rows ends after so many microseconds.
const MAX_LOCKED: u64 = 1_000_000;

/// The read that has locked rows, and its process.
type Holder = (usize, CallId);

#[derive(Default)]
pub(super) struct Store {
    values: HashMap<StoredKey, FoundValue>,
    /// The locked rows, and until when.
    locks: HashMap<StoredKey, (Holder, u64)>,
    /// True for a store that does not compare versions.
    is_broken: bool,
}

impl Store {
    pub(super) fn new(is_broken: bool) -> Self {
        Self { is_broken, ..Self::default() }
    }

    /// Locks the rows that are there. False if another call has locked one.
    pub(super) fn locks(&mut self, keys: &[StoredKey], holder: Holder, clock: u64) -> bool {
        let is_free = self.is_free(keys, holder, clock);
        if is_free {
            let there = keys.iter().filter(|key| self.values.contains_key(key));
            self.locks.extend(there.map(|key| (key.clone(), (holder, clock + MAX_LOCKED))));
        }
        is_free
    }

    /// True if no other call has locked one of these rows.
    pub(super) fn is_free(&self, keys: &[StoredKey], holder: Holder, clock: u64) -> bool {
        keys.iter().all(|key| !self.is_locked(key, holder, clock))
    }

    fn is_locked(&self, key: &StoredKey, holder: Holder, clock: u64) -> bool {
        self.locks.get(key).is_some_and(|(other, until)| *other != holder && *until > clock)
    }

    pub(super) fn read(&self, keys: &[StoredKey], clock: u64) -> Event {
        let values = keys.iter().map(|key| self.values.get(key).cloned()).collect();
        Event::Read { clock: Some(clock), epoch: Some(1), values }
    }

    pub(super) fn swap(&mut self, sets: &[ChangeSet], locked: Option<Holder>, clock: u64) -> Event {
        let holder = locked.unwrap_or((usize::MAX, 0));
        let has_ended = self.locks.values().any(|(other, until)| *other == holder && *until <= clock);
        if has_ended {
            self.locks.retain(|_, (other, _)| *other != holder);
            return Event::NotRun(Error::new(ErrorKind::StoreTimeout, "the transaction has ended"));
        }
        let mut results = Vec::new();
        for set in sets {
            let stands = |change: &Change| {
                let is_same = self.values.get(&change.key).map(|found| &found.version) == change.version.as_ref();
                !self.is_locked(&change.key, holder, clock) && (is_same || self.is_broken)
            };
            let is_done = set.from <= clock && clock <= set.until && set.changes.iter().all(stands);
            for change in &set.changes {
                if !is_done {
                    results.push(SwapResult::Lost(self.values.get(&change.key).cloned()));
                    continue;
                }
                match &change.data {
                    Some(data) => {
                        let found = FoundValue { version: Version::from_slice(&data[..8]), data: data.clone() };
                        self.values.insert(change.key.clone(), found);
                    }
                    None => drop(self.values.remove(&change.key)),
                }
                results.push(SwapResult::Done);
            }
        }
        self.locks.retain(|_, (other, _)| *other != holder);
        Event::Swapped { clock: Some(clock), results }
    }

    /// The units of the first limit that are used.
    pub(super) fn used(&self, plan: &Plan, key: &str, clock: u64) -> i64 {
        let stored = self.values.get(&StoredKey::new(&KeyNames::from("sim"), plan.policy.name(), key));
        let mut working = WorkingValue::new(stored.map(|found| found.data.clone()), clock);
        let plan = crate::plan::plan_cache::plan_of(&plan.policy);
        let entry = Entry { plan: &plan, key, operation: Operation::peek(1) };
        let here = Circumstances { now: clock, epoch: None, max_value: DEFAULT_MAX_VALUE };
        let answer = decide(&entry, &mut working, here).expect("a value of ours");
        plan.rules[0].capacity() as i64 - answer.views[0].left
    }
}
