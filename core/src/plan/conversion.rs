//! How one version of a policy reads what another version has stored.

use super::{LimitTag, Plan};
use crate::algorithm::{Rule, State};

impl Plan {
    /// The states of this version, of what a version with these tags has stored. What was used stays used for each limit of
    /// the same algorithm and period; the others start unused.
    pub(crate) fn converted<C: FromIterator<State>>(
        &self,
        tags: &[LimitTag],
        states: impl Iterator<Item = State>,
        now: u64,
    ) -> C {
        let mut old: Vec<(&LimitTag, Option<State>)> = tags.iter().zip(states.map(Some)).collect();
        let limits = self.format.tags.iter().zip(&self.rules).zip(self.policy.limits());
        let taken = limits.map(|((tag, rule), limit)| {
            let same = old.iter_mut().find(|(other, state)| state.is_some() && other.is_same_limit(tag));
            match same.and_then(|(other, state)| Some((other, state.take()?))) {
                Some((other, mut state)) => {
                    if other.bucket_count != tag.bucket_count {
                        rule.rescale(&mut state, (other.bucket_count, limit.period().micros()), now);
                    }
                    state
                }
                None => Rule::fresh(rule),
            }
        });
        taken.collect()
    }
}
