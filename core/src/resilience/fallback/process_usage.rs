//! What this process knows about usage, and enforces during an outage.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::outage_usage::OutageUsage;
use super::usage_snapshots::UsageSnapshots;
use crate::algorithm::{HoldId, Rule};
use crate::error::Result;
use crate::plan::Plan;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::memory::ForgottenDenials;
use crate::store::request::{Answer, Entry, Operation, Source};
use crate::table_key::{TableKey, TableKeyRef};

/// Stands for the store among the numbers of outages.
const STORE: u64 = 0;

/// See the module.
pub(super) struct ProcessUsage {
    snapshots: UsageSnapshots,
    /// Of the outage that is running, or of the next one.
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
        self.seed(outage, entry, now);
        let mut answer = immediate(outage.memory.ask(entry, CallContext::at(Some(now))));
        answer.source = Source::Fallback;
        self.snapshots.observe(entry, &answer, now, outage.outage);
        answer
    }

    /// Decides entries together.
    pub(super) fn enforce_all(&self, entries: &[Entry<'_>], now: u64) -> Vec<Answer> {
        let outage = self.outage.load();
        entries.iter().for_each(|entry| self.seed(&outage, entry, now));
        let mut answers = outage.memory.ask_all(entries, CallContext::at(Some(now))).unwrap_or_default();
        for (entry, answer) in entries.iter().zip(&mut answers) {
            answer.source = Source::Fallback;
            self.snapshots.observe(entry, answer, now, outage.outage);
        }
        answers
    }

    /// Charges or refunds a key that is enforced in this outage; of any other the usage is not in force any more.
    pub(super) fn settle(&self, entry: &Entry<'_>, now: u64) {
        let outage = self.outage.load();
        if self.snapshots.is_enforced_in(entry, outage.outage) {
            self.enforce_in(&outage, entry, now);
        }
    }

    fn seed(&self, outage: &OutageUsage, entry: &Entry<'_>, now: u64) {
        outage.mark_used();
        let holds = self.holds(entry);
        self.snapshots.begin_enforcing(entry, now, outage.outage, &holds, |resumed| {
            outage.memory.put(entry, resumed.states, resumed.blocked_until, now);
        });
    }

    /// The store is back and decides again: the usage of the outage remains only as snapshots.
    pub(super) fn end_outage(&self) {
        let outage = self.outage.load();
        if outage.is_used() {
            self.outage.store(Arc::new(OutageUsage::new(outage.outage + 1, Arc::clone(&self.forgotten_denials))));
        }
    }

    /// Learns from an answer of the store.
    #[inline]
    pub(super) fn observe(&self, entry: &Entry<'_>, answer: &Answer, now: u64) {
        self.observe_usage(entry, answer, now);
        if let Operation::Check { cost: units, hold, .. } = entry.operation
            && hold != 0
            && answer.applied
            && has_concurrency(entry.plan)
        {
            let held = StoreHold { identity: entry.plan.identity, key: TableKey::of(entry.key), units };
            self.holds.lock().insert(hold, held);
        }
    }

    #[inline]
    pub(super) fn sweep_if_due(&self, now: u64) {
        self.snapshots.sweep_if_due(now);
    }

    /// The same for an operation that takes no hold.
    #[inline]
    pub(super) fn observe_usage(&self, entry: &Entry<'_>, answer: &Answer, now: u64) {
        self.snapshots.observe(entry, answer, now, STORE);
    }

    pub(super) fn forget_hold(&self, hold: HoldId) {
        self.holds.lock().remove(&hold);
    }

    /// The holds of a key, and their units.
    fn holds(&self, entry: &Entry<'_>) -> SmallVec<[(HoldId, u64); 4]> {
        if !has_concurrency(entry.plan) {
            return SmallVec::new();
        }
        let holds = self.holds.lock();
        let key = TableKeyRef::of(entry.key);
        let is_of = |held: &&StoreHold| held.identity == entry.plan.identity && held.key == key;
        holds.iter().filter(|(_, held)| is_of(held)).map(|(id, held)| (*id, held.units)).collect()
    }
}

fn has_concurrency(plan: &Plan) -> bool {
    plan.rules.iter().any(|rule| matches!(rule, Rule::Concurrency(_)))
}

/// The memory store never fails.
fn immediate(answer: Result<Answer>) -> Answer {
    answer.unwrap_or_default()
}
