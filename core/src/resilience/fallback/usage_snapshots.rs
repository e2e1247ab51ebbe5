//! The last known usage of keys. This process goes on from it when the store is lost. It has the state as the store
//! keeps it, and how far the clock of the store is ahead of this process's. A key goes on in the time of its store, so
//! that windows end when they would have ended there.

mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::algorithm::{HoldId, Rule};
use crate::plan::Plan;
use crate::resilience::key_table::{KeyPlace, KeyTable, TableShard};
use crate::store::request::{Answer, Entry, States};
use crate::store::usage::Resumed;
use crate::tables::table_key::TableKeyRef;
use snapshot::Snapshot;

/// Stands for the store among the numbers of outages.
pub(super) const STORE: u64 = 0;
/// How many microseconds the last noted clock of the store may be off. Keys without a snapshot use that clock.
const CLOCK_TOLERANCE: i64 = 1_000_000;

/// The usage that a key goes on from.
pub(super) struct ResumedUsage<'a> {
    /// The version of the policy that has stored the states.
    pub(super) plan: &'a Arc<Plan>,
    pub(super) states: States,
    /// Its block and its traces, in the store's time, as is `now`.
    pub(super) rest: Resumed,
    pub(super) now: u64,
}

/// A bounded table of the last known usage.
#[derive(Default)]
pub(crate) struct UsageSnapshots {
    table: KeyTable<Snapshot>,
    /// How far the clock of the store is ahead, for keys without a snapshot.
    ahead: AtomicI64,
}

impl UsageSnapshots {
    /// Takes over the usage that an answer shows. `now` is the time of this process. `outage` is the outage that
    /// enforced it, 0 for an answer of the store.
    #[inline]
    pub(crate) fn observe(&self, entry: &Entry<'_>, answer: &Answer, mut states: States, now: u64, outage: u64) {
        for state in &mut states {
            if let Some(smaller) = Rule::bounded(state) {
                *state = smaller;
            }
        }
        let key = TableKeyRef::of(entry.key);
        let KeyPlace { mut shard, hash, index } = self.table.place(entry.plan, key);
        match index {
            Some(index) => shard.change(index, |snapshot| snapshot.update(entry, answer, states, now, outage)),
            None => {
                let snapshot = Snapshot::new(entry.plan, (key, hash), answer, states, now, outage);
                if snapshot.is_unused(now) && outage == STORE && entry.plan.grace == 0 {
                    return;
                }
                self.note_clock(snapshot.ahead);
                shard.insert(snapshot, now);
            }
        }
    }

    /// Keeps the least of the noted differences, within the tolerance, so that no window ends too early.
    fn note_clock(&self, ahead: i64) {
        let noted = self.ahead.load(Ordering::Relaxed);
        if ahead < noted || ahead > noted + CLOCK_TOLERANCE {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// Called before a key is enforced locally. Returns the time of the key's store. The first time in an outage,
    /// `seed` receives the usage to go on from, and no other thread reaches the key meanwhile. `holds` gives the ids
    /// and units of the holds of this process, in case the key has no snapshot any more.
    pub(super) fn begin_enforcing<H: AsRef<[(HoldId, u64)]>>(
        &self,
        entry: &Entry<'_>,
        now: u64,
        outage: u64,
        holds: impl FnOnce() -> H,
        seed: impl FnOnce(ResumedUsage<'_>),
    ) -> u64 {
        let key = TableKeyRef::of(entry.key);
        let KeyPlace { mut shard, hash, index } = self.table.place(entry.plan, key);
        match index {
            Some(index) => shard.change(index, |snapshot| {
                if snapshot.outage != outage {
                    snapshot.outage = outage;
                    seed(snapshot.resumed(now));
                }
                snapshot.store_time(now)
            }),
            None => {
                let store_time = now.saturating_add_signed(self.ahead.load(Ordering::Relaxed));
                let answer = Answer { now: store_time, ..Answer::default() };
                let mut states: States = entry.plan.rules.iter().map(Rule::fresh).collect();
                let holds = holds();
                for (rule, state) in entry.plan.rules.iter().zip(&mut states) {
                    if matches!(rule, Rule::Concurrency(_)) {
                        holds.as_ref().iter().for_each(|(id, units)| rule.charge(state, store_time, *units, *id));
                    }
                }
                let snapshot = Snapshot::new(entry.plan, (key, hash), &answer, states, now, outage);
                if !holds.as_ref().is_empty() {
                    seed(snapshot.resumed(now));
                }
                shard.insert(snapshot, now);
                store_time
            }
        }
    }

    /// Forgets every usage.
    pub(super) fn forget_all(&self) {
        self.table.each(TableShard::clear);
    }

    /// Forgets a few usages that are over, now and then.
    #[inline]
    pub(super) fn sweep_if_due(&self, now: u64) {
        self.table.sweep_if_due(now);
    }

    /// True if a key is enforced locally in that outage.
    pub(super) fn is_enforced_in(&self, entry: &Entry<'_>, outage: u64) -> bool {
        let place = self.table.place(entry.plan, TableKeyRef::of(entry.key));
        place.get().is_some_and(|snapshot| snapshot.outage == outage)
    }
}
