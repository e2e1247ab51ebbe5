//! How one version of a policy reads what another version has stored.

use super::{LimitTag, MAX_LIMITS, Plan};
use crate::algorithm::{MAX_SAFE_INTEGER, Rule, State};
use crate::policy::Period;
use crate::tables::allocation::allocated;

/// What is stored of a limit, of whatever version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLimit {
    pub(crate) tag: LimitTag,
    pub(crate) state: State,
    /// Until when it is kept where this version has no such limit.
    pub(crate) until: u64,
}

impl StoredLimit {
    /// Kept where this version has no such limit: not less long than its state means anything.
    pub(crate) fn new(tag: &LimitTag, state: &State) -> Self {
        let until = match state {
            State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state) => {
                let drains = u128::from(state.units) * u128::from(tag.period().map_or(0, Period::micros)) / u128::from(tag.bucket_count.max(1)) + 1;
                state.since.saturating_add(u64::try_from(drains).unwrap_or(u64::MAX)).min(MAX_SAFE_INTEGER)
            }
            state => tag.longest_rule().map_or(0, |rule| rule.ends(state)),
        };
        Self { tag: tag.clone(), state: state.clone(), until }
    }

    /// Those that another version counts still, at most as many as a policy may have.
    pub(crate) fn kept(mut stored: Vec<Self>, now: u64) -> Vec<Self> {
        // Limits of one algorithm and period are told apart by their order alone: they stay together, or none does.
        let ends = |tag: &LimitTag| {
            let same = stored.iter().filter(|other| other.tag.is_same_limit(tag) && !other.state.is_unused());
            same.map(|other| other.until).max().unwrap_or(0)
        };
        let ends: Vec<u64> = stored.iter().map(|limit| ends(&limit.tag)).collect();
        stored.iter_mut().zip(ends).for_each(|(limit, until)| limit.until = until);
        stored.retain(|limit| limit.until > now);
        stored.sort_by_key(|limit| std::cmp::Reverse(limit.until));
        stored.truncate(MAX_LIMITS);
        stored
    }

    /// The bytes that such limits have allocated.
    pub(crate) fn heap_bytes(limits: &Vec<Self>) -> usize {
        allocated(limits.capacity() * size_of::<Self>())
            + limits.iter().map(|limit| limit.state.heap_bytes()).sum::<usize>()
    }
}

impl Plan {
    /// The states of this version, taken out of what is stored. What was used stays used for each limit of the same
    /// algorithm and period; the others start unused.
    pub(crate) fn converted<C: FromIterator<State>>(&self, stored: &mut Vec<StoredLimit>, now: u64) -> C {
        let limits = self.format.tags.iter().zip(&self.rules).zip(self.policy.limits());
        let taken = limits.map(|((tag, rule), limit)| {
            let Some(index) = stored.iter().position(|other| other.tag.is_same_limit(tag)) else {
                return Rule::fresh(rule);
            };
            let StoredLimit { tag: other, mut state, .. } = stored.remove(index);
            if other.bucket_count != tag.bucket_count {
                rule.rescale(&mut state, (other.bucket_count, limit.period().micros()), now);
            }
            state
        });
        taken.collect()
    }
}
