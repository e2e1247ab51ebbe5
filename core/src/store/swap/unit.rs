//! Groups that share keys, which are applied to the same values and swapped together.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::decision::{Circumstances, WorkingValue, decide, decide_together};
use super::value::{Mark, set_mark};
use super::{Change, ChangeSet, FoundValue, Version};
use crate::error::{Error, Result};
use crate::store::request::{Answer, OwnedEntry, borrowed};
use crate::store::stored_key::StoredKey;

pub(super) type GroupId = u64;
pub(super) type GroupAnswers = Result<Vec<Answer>>;

/// The entries of a call, all applied or none.
pub(super) struct CallGroup<R> {
    pub(super) entries: Arc<[OwnedEntry]>,
    /// The key of each entry.
    pub(super) keys: SmallVec<[StoredKey; 1]>,
    /// True for a `check_all`: one refusal refuses all.
    pub(super) together: bool,
    /// The time to decide by. Without it the clock of the store decides.
    pub(super) now: Option<u64>,
    pub(super) deadline: Instant,
    /// `None` once it is answered.
    pub(super) recipient: Option<R>,
    /// The swaps that it has lost.
    pub(super) lost: u8,
    /// Why its last swap was not done, if that was no loss.
    pub(super) failure: Option<Error>,
}

/// A swap of a unit, as it was decided.
#[derive(Debug)]
pub(super) struct SwapAttempt {
    pub(super) mark: Mark,
    /// The versions that it was to replace, by the index of the key.
    pub(super) replaces: Vec<(usize, Option<Version>)>,
    pub(super) answers: Vec<(GroupId, GroupAnswers)>,
}

/// Groups that share keys.
#[derive(Debug)]
pub(super) struct SwapUnit {
    pub(super) groups: Vec<GroupId>,
    pub(super) keys: Vec<StoredKey>,
    /// The values that the store had when they were read last.
    pub(super) values: Vec<Option<FoundValue>>,
    /// The swaps that may still arrive. An unknown outcome, or none in time, leaves them here.
    pub(super) attempts: Vec<SwapAttempt>,
}

/// The decision on a unit.
pub(super) struct Decided {
    pub(super) answers: Vec<(GroupId, GroupAnswers)>,
    /// By the index of the key. It is empty if nothing is written.
    pub(super) changes: Vec<(usize, WorkingValue)>,
}

impl SwapUnit {
    /// True if its groups take or return units of a lease.
    pub(super) fn needs_epoch<'a, R: 'a>(&self, group_of: impl Fn(GroupId) -> Option<&'a CallGroup<R>>) -> bool {
        let entries = self.groups.iter().filter_map(|id| group_of(*id)).flat_map(|group| &*group.entries);
        entries.into_iter().any(|entry| entry.operation.is_of_lease())
    }

    /// Applies the groups in their order to the values. A group with a time of its own is decided by that.
    pub(super) fn decide<'a, R: 'a>(
        &self,
        group_of: impl Fn(GroupId) -> Option<&'a CallGroup<R>>,
        here: Circumstances,
    ) -> Decided {
        let data = |found: &Option<FoundValue>| found.as_ref().map(|found| found.data.clone());
        let mut working: Vec<WorkingValue> =
            self.values.iter().map(|found| WorkingValue::new(data(found), here.now)).collect();
        let mut answers = Vec::with_capacity(self.groups.len());
        for id in &self.groups {
            // A group that has been answered meanwhile is not applied.
            let Some(group) = group_of(*id).filter(|group| group.recipient.is_some()) else { continue };
            let value_of: SmallVec<[usize; 1]> = group
                .keys
                .iter()
                .map(|key| self.keys.iter().position(|known| known == key).unwrap_or_default())
                .collect();
            let entries = borrowed(&group.entries);
            let here = Circumstances { now: group.now.unwrap_or(here.now), ..here };
            // Entries that are decided alone share a call only if there is one.
            let decided = match (&entries[..], group.together) {
                ([entry], false) => decide(entry, &mut working[value_of[0]], here).map(|answer| vec![answer]),
                (entries, _) => decide_together(entries, &value_of, &mut working, here),
            };
            answers.push((*id, decided));
        }
        let changes = working.into_iter().enumerate().filter(|(_, value)| value.is_changed).collect();
        Decided { answers, changes }
    }

    /// The changes of a decision, with that mark.
    pub(super) fn change_set(
        &self,
        decided: Vec<(usize, WorkingValue)>,
        mark: Mark,
        from: u64,
        until: u64,
    ) -> ChangeSet {
        let changes = decided.into_iter().map(|(index, WorkingValue { bytes, expires_at, .. })| {
            let data = bytes.map(|mut bytes| {
                set_mark(&mut bytes, mark);
                bytes
            });
            let version = self.values[index].as_ref().map(|found| found.version.clone());
            Change { key: self.keys[index].clone(), version, data, expires_at }
        });
        ChangeSet { changes: changes.collect(), from, until }
    }

    pub(super) fn version(&self, index: usize) -> Option<&Version> {
        self.values[index].as_ref().map(|found| &found.version)
    }

    /// True if an attempt may have been done: what it was to replace does not stand there any more. It cannot be done later.
    pub(super) fn may_have_landed(&self) -> bool {
        let mut replaced = self.attempts.iter().flat_map(|attempt| &attempt.replaces);
        replaced.any(|(index, version)| self.version(*index) != version.as_ref())
    }
}
