//! The usage that this process knows, and enforces during an outage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::lock::Mutex;
use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::usage_snapshots::{ResumedUsage, STORE, UsageSnapshots};
use crate::algorithm::HoldId;
use crate::plan::Plan;
use crate::store::ForgottenDenials;
use crate::store::memory::Memory;
use crate::store::request::{Answer, Entry, Operation, Source, States};
use crate::store::url::MemoryBounds;
use crate::tables::table_key::{TableKey, TableKeyRef};

/// The bounds of local enforcement. They are smaller than the defaults of a memory store, because the store is another
/// one, and this memory comes in addition.
const BOUNDS: MemoryBounds = MemoryBounds { max_keys: 1_000_000, max_bytes: 256 << 20 };

/// A memory store for one outage.
struct OutageUsage {
    memory: Memory,
    /// The number of the outage, from 1.
    outage: u64,
    used: AtomicBool,
}

impl OutageUsage {
    fn new(outage: u64, forgotten_denials: Arc<ForgottenDenials>) -> Self {
        Self { memory: Memory::new(BOUNDS, forgotten_denials), outage, used: AtomicBool::new(false) }
    }

    fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

/// Keeps the last known usage, and goes on from it during an outage.
pub(super) struct ProcessUsage {
    snapshots: UsageSnapshots,
    /// The usage in the current outage, or in the next one.
    outage: ArcSwap<OutageUsage>,
    /// Holds that this process took from the store and has not given back.
    holds: Mutex<HashMap<HoldId, StoreHold>>,
    forgotten_denials: Arc<ForgottenDenials>,
}

struct StoreHold {
    identity: u128,
    key: TableKey,
    units: u64,
}

impl StoreHold {
    fn is_of(&self, plan: &Plan, key: TableKeyRef<'_>) -> bool {
        self.identity == plan.identity && self.key == key
    }
}

impl ProcessUsage {
    pub(super) fn new(forgotten_denials: &Arc<ForgottenDenials>) -> Self {
        Self {
            snapshots: UsageSnapshots::default(),
            outage: ArcSwap::from_pointee(OutageUsage::new(1, Arc::clone(forgotten_denials))),
            holds: Mutex::default(),
            forgotten_denials: Arc::clone(forgotten_denials),
        }
    }

    /// Decides an entry in this process. The first use of a key goes on from its snapshot.
    pub(super) fn enforce(&self, entry: &Entry<'_>, now: u64) -> Answer {
        self.enforce_in(&self.outage.load(), entry, now)
    }

    fn enforce_in(&self, outage: &OutageUsage, entry: &Entry<'_>, now: u64) -> Answer {
        let store_time = self.begin(outage, entry, now);
        let mut answer = outage.memory.answer(entry, Some(store_time));
        answer.source = Source::Fallback;
        self.keep(outage, entry, &answer, now);
        answer
    }

    /// Decides entries together.
    pub(super) fn enforce_all(&self, entries: &[Entry<'_>], now: u64) -> Vec<Answer> {
        let outage = self.outage.load();
        let times: Vec<u64> = entries.iter().map(|entry| self.begin(&outage, entry, now)).collect();
        let mut answers = outage.memory.check_all(entries, |index| times[index], 0);
        for (entry, answer) in entries.iter().zip(&mut answers) {
            answer.source = Source::Fallback;
            self.keep(&outage, entry, answer, now);
        }
        answers
    }

    /// Remembers the usage for an outage that may follow before the store has answered.
    fn keep(&self, outage: &OutageUsage, entry: &Entry<'_>, answer: &Answer, now: u64) {
        let states = outage.memory.states(entry, answer.now);
        self.snapshots.observe(entry, answer, states, now, outage.outage);
    }

    /// Charges or refunds a key that is enforced in this outage. The usage of any other key is not in force any more.
    pub(super) fn settle(&self, entry: &Entry<'_>, now: u64) {
        let outage = self.outage.load();
        if self.snapshots.is_enforced_in(entry, outage.outage) {
            self.enforce_in(&outage, entry, now);
        }
    }

    /// Called before a key is enforced. Returns the time of its store.
    fn begin(&self, outage: &OutageUsage, entry: &Entry<'_>, now: u64) -> u64 {
        outage.mark_used();
        let holds = || self.holds(entry);
        self.snapshots.begin_enforcing(entry, now, outage.outage, holds, |resumed| {
            // The states may be those of an older version of the policy. The memory reads them as the store would.
            let ResumedUsage { plan, states, rest, now } = resumed;
            let stored = Entry { plan, key: entry.key, operation: Operation::peek(1) };
            outage.memory.put(&stored, states, rest, now);
        })
    }

    /// The store is back and decides again: the usage of the outage remains only as snapshots.
    pub(super) fn end_outage(&self) {
        let outage = self.outage.load();
        if outage.is_used() {
            self.outage.store(Arc::new(OutageUsage::new(outage.outage + 1, Arc::clone(&self.forgotten_denials))));
        }
    }

    /// Learns from an answer of the store. `states` are the stored states after it.
    #[inline]
    pub(super) fn observe(&self, entry: &Entry<'_>, answer: &Answer, states: States, now: u64) {
        self.observe_usage(entry, answer, states, now);
        match entry.operation {
            Operation::Check { cost: units, hold, .. } if hold != 0 && answer.applied && entry.plan.is_held => {
                let held = StoreHold { identity: entry.plan.identity, key: TableKey::of(entry.key), units };
                self.holds.lock().insert(hold, held);
            }
            // The store does not have the hold any more.
            Operation::Renew { hold } if !answer.applied => self.forget_hold(hold),
            Operation::Clear if entry.plan.is_held => {
                let key = TableKeyRef::of(entry.key);
                self.holds.lock().retain(|_, held| !held.is_of(entry.plan, key));
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn sweep_if_due(&self, now: u64) {
        self.snapshots.sweep_if_due(now);
    }

    /// Keeps the usage that an answer shows, for an operation that takes no hold.
    #[inline]
    pub(super) fn observe_usage(&self, entry: &Entry<'_>, answer: &Answer, states: States, now: u64) {
        self.snapshots.observe(entry, answer, states, now, STORE);
    }

    /// Called when the store has forgotten everything.
    pub(super) fn forget_all(&self) {
        self.snapshots.forget_all();
        self.holds.lock().clear();
    }

    pub(super) fn forget_hold(&self, hold: HoldId) {
        self.holds.lock().remove(&hold);
    }

    /// The holds of a key, and their units.
    fn holds(&self, entry: &Entry<'_>) -> SmallVec<[(HoldId, u64); 4]> {
        if !entry.plan.is_held {
            return SmallVec::new();
        }
        let holds = self.holds.lock();
        let key = TableKeyRef::of(entry.key);
        holds.iter().filter(|(_, held)| held.is_of(entry.plan, key)).map(|(id, held)| (*id, held.units)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_800_000_000 * SECOND;
    const HOUR: u64 = 3_600 * SECOND;

    fn check(cost: u64) -> Operation {
        Operation::check(cost)
    }

    /// Keys of shards with different clocks. A charge to all of them counts for each as long as in its own store.
    #[test]
    fn keys_that_are_decided_together_have_the_time_of_their_stores() {
        let usage = ProcessUsage::new(&Arc::default());
        let plan = plan_of(&Policy::parse("fixed-window 10/minute").expect("a policy"));
        let keys = [("behind", NOW - 2 * HOUR), ("level", NOW), ("ahead", NOW + 2 * HOUR)];
        for (key, store_time) in keys {
            let mut state = plan.rules[0].fresh();
            // A window that is over when the store is lost.
            plan.rules[0].charge(&mut state, store_time, 1, 0);
            let views = std::iter::once(plan.rules[0].view(&state, store_time, 1, 0)).collect();
            let answer = Answer { now: store_time, views, ..Answer::default() };
            let entry = Entry { plan: &plan, key, operation: check(1) };
            usage.observe(&entry, &answer, std::iter::once(state).collect(), NOW);
        }
        let lost = NOW + 2 * 60 * SECOND;
        let entries = keys.map(|(key, _)| Entry { plan: &plan, key, operation: check(8) });
        assert!(usage.enforce_all(&entries, lost).iter().all(|answer| answer.applied));
        for (key, store_time) in keys {
            let denied_at = |now: u64| !usage.enforce(&Entry { plan: &plan, key, operation: check(3) }, now).applied;
            assert!(denied_at(lost + 60 * SECOND - 1), "{key}: the window has not ended");
            let answer = usage.enforce(&Entry { plan: &plan, key, operation: check(3) }, lost + 60 * SECOND);
            assert_eq!((answer.applied, answer.now), (true, store_time + 3 * 60 * SECOND), "{key}");
        }
    }
}
