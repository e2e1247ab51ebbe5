//! How one version of a policy reads the values that another version stored.

use super::{LimitTag, MAX_LIMITS, Plan};
use crate::algorithm::{MAX_SAFE_INTEGER, Rule, State};
use crate::policy::Period;
use crate::tables::allocation::allocated;

/// The stored state of a limit, from any version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLimit {
    pub(crate) tag: LimitTag,
    pub(crate) state: State,
    /// The time until which it is kept if this version has no such limit.
    pub(crate) until: u64,
}

impl StoredLimit {
    /// Keeps the state for a version without such a limit, at least as long as the state matters.
    pub(crate) fn new(tag: &LimitTag, state: &State) -> Self {
        let period = tag.period().map_or(0, Period::micros);
        let until = match state {
            State::TokenBucket(state) | State::Gcra(state) | State::LeakyBucket(state) => {
                let drains = u128::from(state.units) * u128::from(period) / u128::from(tag.bucket_count.max(1)) + 1;
                state.since.saturating_add(u64::try_from(drains).unwrap_or(u64::MAX)).min(MAX_SAFE_INTEGER)
            }
            // Its granules are unknown.
            State::SlidingWindow(state) => state.touched + 2 * period,
            state => tag.any_rule().map_or(0, |rule| rule.ends(state)),
        };
        Self { tag: tag.clone(), state: state.clone(), until }
    }

    /// The stored limits that another version still counts, at most as many as a policy may have.
    pub(crate) fn kept(mut stored: Vec<Self>, now: u64) -> Vec<Self> {
        // Only their order distinguishes limits of one algorithm and period, so they stay together, or none does.
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
    /// The states of this version, taken out of the stored limits. Usage stays for each limit of the same algorithm and
    /// period. The others start unused.
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
