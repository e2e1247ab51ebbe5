//! Several entries, all charged or none, under the locks of all their shards.

use std::collections::{BTreeMap, BTreeSet};

use super::Memory;
use super::usage::{StoredState, Usage};
use crate::store::request::{Answer, Entry};
use crate::tables::table_key::TableKeyRef;

/// A usage taken out of its shard.
struct Draft {
    usage: Usage,
    /// What was stored …
    stored: StoredState,
    /// … and how this version of the policy reads it.
    converted: StoredState,
    was_stored: bool,
    changed: bool,
    now: u64,
}

impl Memory {
    /// `time_of` is the time of each entry, by its index: keys of several stores have several clocks.
    pub(crate) fn check_all(&self, entries: &[Entry<'_>], time_of: impl Fn(usize) -> u64, swept: usize) -> Vec<Answer> {
        let hashes: Vec<u64> = entries.iter().map(|entry| self.hash(entry.plan, TableKeyRef::of(entry.key))).collect();
        // All calls lock in the same order, so that two calls never wait for each other.
        let needed: BTreeSet<usize> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        let mut shards: BTreeMap<usize, _> =
            needed.into_iter().map(|shard| (shard, self.shards[shard].lock())).collect();

        // Each usage is taken out once and put back when everything is decided. Two entries may be of one usage.
        let mut drafts: Vec<Draft> = Vec::new();
        let mut draft_of = Vec::with_capacity(entries.len());
        let mut admitted = Vec::with_capacity(entries.len());
        let mut refused = Vec::with_capacity(entries.len());
        let mut spared = Vec::with_capacity(entries.len());
        for (index, (entry, hash)) in entries.iter().zip(&hashes).enumerate() {
            let now = time_of(index);
            let key = TableKeyRef::of(entry.key);
            let known = drafts.iter().position(|draft| draft.usage.hash == *hash && draft.usage.is_of(entry.plan, key));
            let number = known.unwrap_or_else(|| {
                let stored = shards.get_mut(&self.shard_of(*hash)).and_then(|shard| {
                    let at = shard.find(*hash, entry.plan, key)?;
                    Some(shard.remove(at))
                });
                let was_stored = stored.is_some();
                let mut usage = stored.unwrap_or_else(|| Usage::new(entry, *hash));
                let stored = usage.stored_state();
                usage.read_as(entry.plan, now);
                let converted = usage.stored_state();
                drafts.push(Draft { usage, stored, converted, was_stored, changed: false, now });
                drafts.len() - 1
            });
            let admits = drafts[number].usage.admits(entry, now);
            if admits {
                drafts[number].usage.charge(entry, now);
            }
            spared.push(!admits && drafts[number].usage.spares(entry, now));
            refused.push((!admits).then(|| drafts[number].usage.refusing_limits(entry, now)));
            draft_of.push(number);
            admitted.push(admits);
        }
        let all_admitted =
            entries.iter().zip(&admitted).all(|(entry, admits)| *admits || entry.plan.policy.options().shadow);
        if !all_admitted {
            for Draft { usage, converted, .. } in &mut drafts {
                usage.restore(converted.clone());
            }
        }
        for (index, entry) in entries.iter().enumerate() {
            let Draft { usage, changed, now, .. } = &mut drafts[draft_of[index]];
            let now = *now;
            *changed |= if admitted[index] { all_admitted } else { usage.refuse(entry, now, spared[index]) };
            usage.record_attempt(entry, now, admitted[index] && all_admitted);
        }
        for (index, entry) in entries.iter().enumerate() {
            let Draft { usage, changed, now, .. } = &mut drafts[draft_of[index]];
            if *changed {
                usage.refresh_expiry(entry.plan, *now);
            }
        }
        let answers = entries.iter().enumerate().map(|(index, entry)| {
            let charged = (admitted[index] && all_admitted).then(|| entry.operation.cost());
            let Draft { usage, now, .. } = &drafts[draft_of[index]];
            let answer = usage.answer(entry, *now, admitted[index], charged);
            Answer { refused: refused[index], ..answer }
        });
        let answers: Vec<Answer> = answers.collect();
        for (answer, number) in answers.iter().zip(&draft_of).filter(|(answer, _)| !answer.applied) {
            drafts[*number].usage.remember_denial(answer);
        }
        for Draft { mut usage, stored, was_stored, changed, now, .. } in drafts {
            if !changed {
                usage.restore(stored);
            }
            let kept = usage.is_live(now) || was_stored && !changed;
            if let Some(shard) = shards.get_mut(&self.shard_of(usage.hash)).filter(|_| kept) {
                shard.insert(usage, now, self.shard_capacity, swept);
            }
        }
        for (index, hash) in hashes.iter().enumerate() {
            if let Some(shard) = shards.get_mut(&self.shard_of(*hash)) {
                self.keep_within_budget(shard, time_of(index), *hash);
            }
        }
        answers
    }
}
