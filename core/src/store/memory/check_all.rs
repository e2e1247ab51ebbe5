//! Several entries, all charged or none, under the locks of all their shards.

use std::collections::{BTreeMap, BTreeSet};

use super::Memory;
use super::kept_usage::KeptUsage;
use crate::store::request::{Answer, Entry};
use crate::store::usage::{Draft, decide_all};
use crate::tables::table_key::TableKeyRef;

/// The place of a usage that was taken out of its shard.
struct TakenPlace {
    kept: KeptUsage,
    hash: u64,
    was_stored: bool,
    now: u64,
}

impl Memory {
    /// `time_of` returns the time of an entry by its index: keys of several stores have several clocks. If something is swept,
    /// it is the clock of this store.
    pub(crate) fn check_all(&self, entries: &[Entry<'_>], time_of: impl Fn(usize) -> u64, swept: usize) -> Vec<Answer> {
        let hashes: Vec<u64> = entries.iter().map(|entry| self.hash(entry.plan, TableKeyRef::of(entry.key))).collect();
        // All calls lock in the same order, so that two calls never wait for each other.
        let needed: BTreeSet<usize> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        let mut shards: BTreeMap<usize, _> = needed.into_iter().map(|shard| (shard, self.lock(shard))).collect();

        // All entries are decided at one moment, so it is the latest of their shards.
        let latest = (swept > 0).then(|| shards.values_mut().map(|shard| shard.moment(time_of(0))).max()).flatten();
        if let Some(now) = latest {
            for shard in shards.values_mut() {
                shard.moment(now);
            }
        }
        let time_of = |index| latest.unwrap_or_else(|| time_of(index));

        // Each usage is taken out once and put back when everything is decided.
        let (mut places, mut drafts): (Vec<TakenPlace>, Vec<Draft>) = Default::default();
        let mut draft_of = Vec::with_capacity(entries.len());
        for (index, (entry, hash)) in entries.iter().zip(&hashes).enumerate() {
            let (key, now) = (TableKeyRef::of(entry.key), time_of(index));
            let known = places.iter().position(|place| place.hash == *hash && place.kept.is_of(entry.plan, key));
            draft_of.push(known.unwrap_or_else(|| {
                let stored = shards.get_mut(&self.shard_of(*hash)).and_then(|shard| {
                    let at = shard.find(*hash, entry.plan, key)?;
                    Some(shard.remove(at))
                });
                let was_stored = stored.is_some();
                let mut kept = stored.unwrap_or_else(|| KeptUsage::new(entry));
                drafts.push(Draft::new(kept.take(entry.plan), entry.plan, now));
                places.push(TakenPlace { kept, hash: *hash, was_stored, now });
                drafts.len() - 1
            }));
        }
        let answers = decide_all(entries, &draft_of, &mut drafts);
        for (TakenPlace { mut kept, hash, was_stored, now }, draft) in places.into_iter().zip(drafts) {
            let (usage, changed) = draft.finish();
            kept.usage = usage;
            let stays = kept.usage.is_live(now) || was_stored && !changed;
            if let Some(shard) = shards.get_mut(&self.shard_of(hash)).filter(|_| stays) {
                shard.insert(hash, kept, now, self.shard_capacity, swept);
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
