//! What this process last heard about keys, so that it can go on from there when the store is lost.
//!
//! Everything is kept in this process's own time: a moment that the store named is shifted by the difference between the
//! two clocks when it was heard.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::table::{Item, Table};
use crate::algorithm::{HoldId, Observed};
use crate::plan::Plan;
use crate::store::request::{Answer, Entry, States};

/// What a limit used, and when all of it is over.
type Used = SmallVec<[(u64, u64); 1]>;

/// One key of one policy.
struct Key {
    key: CompactString,
    hash: u64,
    /// The policy as it was when it was heard.
    plan: Arc<Plan>,
    at: u64,
    used: Used,
    blocked_until: u64,
    /// The outage whose local usage goes on from this; 0 when what was heard last came from the store.
    outage: u64,
}

impl Key {
    fn is_of(&self, entry: &Entry<'_>) -> bool {
        self.plan.identity == entry.plan.identity && self.key == entry.key
    }
}

impl Item for Key {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn until(&self) -> u64 {
        self.used.iter().fold(self.blocked_until, |until, (_, ends)| until.max(*ends))
    }
}

/// What is known of a key, as the states of a policy.
pub(super) struct Resumed {
    pub(super) states: States,
    pub(super) blocked_until: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct UsageSnapshots {
    keys: Table<Key>,
}

impl UsageSnapshots {
    /// Takes over what an answer says. `ours` is this process's time of the answer, `outage` who gave it: 0 is the store.
    #[inline]
    pub(crate) fn hear(&self, entry: &Entry<'_>, answer: &Answer, ours: u64, outage: u64) {
        if answer.views.is_empty() {
            return;
        }
        let shifted = |moment: u64| moment.saturating_add(ours).saturating_sub(answer.now);
        let blocked_until = if answer.blocked_until > answer.now { shifted(answer.blocked_until) } else { 0 };
        let rules = entry.plan.rules.iter().zip(answer.views.iter());
        let used = rules.map(|(rule, view)| (rule.capacity().saturating_sub(view.remaining), shifted(view.resets_at)));
        let hash = self.keys.hash(entry);
        let mut shard = self.keys.shard(hash);
        match shard.find(hash, |key| key.is_of(entry)) {
            Some(index) => {
                let key = shard.at(index);
                // Answers of one moment may overtake each other, and a replica may tell of the past.
                if ours < key.at && outage == key.outage {
                    return;
                }
                if !Arc::ptr_eq(&key.plan, entry.plan) {
                    key.plan = Arc::clone(entry.plan);
                }
                key.used.clear();
                key.used.extend(used);
                (key.at, key.blocked_until, key.outage) = (ours, blocked_until, outage);
            }
            None => {
                let used: Used = used.collect();
                let unused = used.iter().all(|(_, ends)| *ends <= ours) && blocked_until == 0;
                if unused && outage == 0 && entry.plan.grace == 0 {
                    return;
                }
                let (key, plan) = (entry.key.into(), Arc::clone(entry.plan));
                shard.insert(Key { key, hash, plan, at: ours, used, blocked_until, outage }, ours);
            }
        }
    }

    /// Before a key is used locally in an outage: when it was not yet, `seed` is given what is known of it. Nobody else
    /// gets to the key meanwhile.
    pub(super) fn join(
        &self,
        entry: &Entry<'_>,
        ours: u64,
        outage: u64,
        holds: &[(HoldId, u64)],
        seed: impl FnOnce(Resumed),
    ) {
        let hash = self.keys.hash(entry);
        let mut shard = self.keys.shard(hash);
        match shard.find(hash, |key| key.is_of(entry)) {
            Some(index) => {
                let key = shard.at(index);
                if key.outage != outage {
                    key.outage = outage;
                    seed(key.resumed(entry.plan, ours, holds));
                }
            }
            None => {
                let (key, plan) = (entry.key.into(), Arc::clone(entry.plan));
                let key = Key { key, hash, plan, at: ours, used: Used::new(), blocked_until: 0, outage };
                // What is not known here any more may still be known there.
                if !holds.is_empty() {
                    seed(key.resumed(entry.plan, ours, holds));
                }
                shard.insert(key, ours);
            }
        }
    }

    /// Whether a key is used locally in this outage.
    pub(super) fn is_local(&self, entry: &Entry<'_>, outage: u64) -> bool {
        let hash = self.keys.hash(entry);
        let mut shard = self.keys.shard(hash);
        shard.find(hash, |key| key.is_of(entry)).is_some_and(|index| shard.at(index).outage == outage)
    }
}

impl Key {
    fn resumed(&self, plan: &Arc<Plan>, now: u64, holds: &[(HoldId, u64)]) -> Resumed {
        let same = Arc::ptr_eq(&self.plan, plan);
        let mut old: SmallVec<[Option<&(u64, u64)>; 2]> = self.used.iter().map(Some).collect();
        let rules = plan.rules.iter().zip(plan.policy.limits()).enumerate();
        let states = rules.map(|(index, (rule, limit))| {
            // Another version of the policy: what was used stays used for each limit of the same algorithm and period.
            let like = |index: &usize| {
                let other = &self.plan.policy.limits()[*index];
                old[*index].is_some()
                    && (other.algorithm(), other.period().micros()) == (limit.algorithm(), limit.period().micros())
            };
            let from = if same { Some(index) } else { (0..old.len()).find(like) };
            match from.and_then(|index| old.get_mut(index)).and_then(Option::take) {
                Some(&(used, ends)) => rule.state_from(Observed { used, at: self.at, ends }, now, holds),
                None => match rule {
                    crate::algorithm::Rule::Concurrency(_) => {
                        rule.state_from(Observed { used: 0, at: self.at, ends: 0 }, now, holds)
                    }
                    rule => rule.fresh(),
                },
            }
        });
        Resumed { states: states.collect(), blocked_until: self.blocked_until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::store::request::Operation;

    #[test]
    fn a_million_keys_take_no_more_room_than_there_is() {
        let known = UsageSnapshots::default();
        let plan = plan_of(&Policy::parse("5/hour").expect("a policy"));
        let rule = &plan.rules[0];
        for number in 0..300_000_u64 {
            let key = format!("key {number}");
            let entry = Entry { plan: &plan, key: &key, operation: Operation::Peek { cost: 1 } };
            let mut state = rule.fresh();
            rule.charge(&mut state, number + 1, 1, 0);
            let views = std::iter::once(rule.view(&state, number + 1, 1, 0)).collect();
            known.hear(&entry, &Answer { now: number + 1, views, ..Answer::default() }, number + 1, 0);
        }
        assert_eq!(known.keys.sum(super::super::table::Shard::len), 65_536);
    }
}
