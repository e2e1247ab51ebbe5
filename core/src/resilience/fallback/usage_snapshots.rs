//! The last known usage of keys, from which this process goes on when the store is lost.
//!
//! All times are of this process: a moment of the store is shifted by the difference between the two clocks when the answer
//! was received.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::{HoldId, Observed, Rule};
use crate::allocation::spilled;
use crate::hash_slab::Hashed;
use crate::plan::Plan;
use crate::resilience::key_table::{KeyEntry, KeyTable};
use crate::store::request::{Answer, Entry, States};
use crate::table_key::{TableKey, TableKeyRef};

/// For each limit the units used, and when the last of them is over.
type Used = SmallVec<[(u64, u64); 1]>;

/// The last known usage of one policy and key.
struct Snapshot {
    key: TableKey,
    hash: u64,
    heap_bytes: u32,
    /// The version of the policy that it was observed with.
    plan: Arc<Plan>,
    /// When it was observed.
    at: u64,
    used: Used,
    blocked_until: u64,
    /// The outage that enforces the key locally; 0 when the last answer came from the store.
    outage: u64,
}

impl Snapshot {
    fn is_of(&self, plan: &Plan, key: TableKeyRef<'_>) -> bool {
        self.plan.identity == plan.identity && self.key == key
    }

    /// With what it has allocated measured.
    fn measured(mut self) -> Self {
        self.measure();
        self
    }

    fn measure(&mut self) {
        let heap_bytes = self.key.heap_bytes() + spilled(&self.used) + Plan::share(&self.plan);
        self.heap_bytes = u32::try_from(heap_bytes).unwrap_or(u32::MAX);
    }
}

impl Hashed for Snapshot {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl KeyEntry for Snapshot {
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.heap_bytes as usize
    }

    fn until(&self) -> u64 {
        self.used.iter().fold(self.blocked_until, |until, (_, ends)| until.max(*ends)) + self.plan.grace
    }
}

/// A snapshot as the states of a policy.
pub(super) struct ResumedStates {
    pub(super) states: States,
    pub(super) blocked_until: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct UsageSnapshots {
    table: KeyTable<Snapshot>,
}

impl UsageSnapshots {
    /// Takes over the usage that an answer shows. `now` is the time of this process; `outage` is the outage that enforced it,
    /// 0 for an answer of the store.
    #[inline]
    pub(crate) fn observe(&self, entry: &Entry<'_>, answer: &Answer, now: u64, outage: u64) {
        if answer.views.is_empty() {
            return;
        }
        let shifted = |moment: u64| moment.saturating_add(now).saturating_sub(answer.now);
        let blocked_until = if answer.blocked_until > answer.now { shifted(answer.blocked_until) } else { 0 };
        let rules = entry.plan.rules.iter().zip(answer.views.iter());
        let used = rules.map(|(rule, view)| (rule.capacity().saturating_sub(view.remaining), shifted(view.resets_at)));
        let key = TableKeyRef::of(entry.key);
        let hash = self.table.hash(entry.plan, key);
        let mut shard = self.table.shard(hash);
        match shard.find(hash, |snapshot| snapshot.is_of(entry.plan, key)) {
            Some(index) => shard.change(index, |snapshot| {
                // Answers may overtake each other, and the answer of a replica may be old.
                if now < snapshot.at && outage == snapshot.outage {
                    return;
                }
                snapshot.used.clear();
                snapshot.used.extend(used);
                (snapshot.at, snapshot.blocked_until, snapshot.outage) = (now, blocked_until, outage);
                if !Arc::ptr_eq(&snapshot.plan, entry.plan) {
                    snapshot.plan = Arc::clone(entry.plan);
                    snapshot.measure();
                }
            }),
            None => {
                let used: Used = used.collect();
                let unused = used.iter().all(|(_, ends)| *ends <= now) && blocked_until == 0;
                if unused && outage == 0 && entry.plan.grace == 0 {
                    return;
                }
                let (key, plan) = (key.into(), Arc::clone(entry.plan));
                let snapshot = Snapshot { key, hash, heap_bytes: 0, plan, at: now, used, blocked_until, outage };
                shard.insert(snapshot.measured(), now);
            }
        }
    }

    /// Called before a key is enforced locally. The first time in an outage `seed` receives the states to go on from; no
    /// other thread reaches the key meanwhile.
    pub(super) fn begin_enforcing(
        &self,
        entry: &Entry<'_>,
        now: u64,
        outage: u64,
        holds: &[(HoldId, u64)],
        seed: impl FnOnce(ResumedStates),
    ) {
        let key = TableKeyRef::of(entry.key);
        let hash = self.table.hash(entry.plan, key);
        let mut shard = self.table.shard(hash);
        match shard.find(hash, |snapshot| snapshot.is_of(entry.plan, key)) {
            Some(index) => shard.change(index, |snapshot| {
                if snapshot.outage != outage {
                    snapshot.outage = outage;
                    seed(snapshot.resumed(entry.plan, now, holds));
                }
            }),
            None => {
                let (key, plan, used) = (key.into(), Arc::clone(entry.plan), Used::new());
                let snapshot = Snapshot { key, hash, heap_bytes: 0, plan, at: now, used, blocked_until: 0, outage };
                // The snapshot may have been dropped while the holds are still known.
                if !holds.is_empty() {
                    seed(snapshot.resumed(entry.plan, now, holds));
                }
                shard.insert(snapshot.measured(), now);
            }
        }
    }

    /// Forgets a few usages that are over, now and then.
    #[inline]
    pub(super) fn sweep_if_due(&self, now: u64) {
        self.table.sweep_if_due(now);
    }

    /// Whether a key is enforced locally in that outage.
    pub(super) fn is_enforced_in(&self, entry: &Entry<'_>, outage: u64) -> bool {
        let key = TableKeyRef::of(entry.key);
        let hash = self.table.hash(entry.plan, key);
        let shard = self.table.shard(hash);
        shard
            .find(hash, |snapshot| snapshot.is_of(entry.plan, key))
            .is_some_and(|index| shard.get(index).outage == outage)
    }
}

impl Snapshot {
    fn resumed(&self, plan: &Arc<Plan>, now: u64, holds: &[(HoldId, u64)]) -> ResumedStates {
        let same = Arc::ptr_eq(&self.plan, plan);
        let mut old: SmallVec<[Option<&(u64, u64)>; 2]> = self.used.iter().map(Some).collect();
        let rules = plan.rules.iter().zip(plan.policy.limits()).enumerate();
        let states = rules.map(|(index, (rule, limit))| {
            // Of another version of the policy: usage carries over to each limit of the same algorithm and period.
            let like = |index: &usize| {
                let other = &self.plan.policy.limits()[*index];
                old[*index].is_some()
                    && (other.algorithm(), other.period().micros()) == (limit.algorithm(), limit.period().micros())
            };
            let from = if same { Some(index) } else { (0..old.len()).find(like) };
            match from.and_then(|index| old.get_mut(index)).and_then(Option::take) {
                Some(&(used, ends)) => rule.state_from(Observed { used, at: self.at, ends }, now, holds),
                None => match rule {
                    Rule::Concurrency(_) => rule.state_from(Observed { used: 0, at: self.at, ends: 0 }, now, holds),
                    rule => rule.fresh(),
                },
            }
        });
        ResumedStates { states: states.collect(), blocked_until: self.blocked_until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::resilience::key_table::TableShard;
    use crate::store::request::Operation;

    #[test]
    fn the_snapshots_stay_within_their_capacity_under_a_flood_of_keys() {
        let snapshots = UsageSnapshots::default();
        let plan = plan_of(&Policy::parse("5/hour").expect("a policy"));
        let rule = &plan.rules[0];
        for number in 0..300_000_u64 {
            let key = format!("key {number}");
            let entry = Entry { plan: &plan, key: &key, operation: Operation::Peek { cost: 1 } };
            let mut state = rule.fresh();
            rule.charge(&mut state, number + 1, 1, 0);
            let views = std::iter::once(rule.view(&state, number + 1, 1, 0)).collect();
            snapshots.observe(&entry, &Answer { now: number + 1, views, ..Answer::default() }, number + 1, 0);
        }
        assert_eq!(snapshots.table.sum(TableShard::len), 65_536);
    }
}
