//! How one version of a policy reads what another version has stored.

use std::sync::Arc;

use super::Usage;
use crate::algorithm::State;
use crate::plan::{LimitTag, Plan};

impl Usage {
    /// Converts what another version of the policy has stored, limit by limit.
    #[inline]
    fn convert_if_other(&mut self, plan: &Plan, now: u64) {
        if !Arc::ptr_eq(&self.format, &plan.format) {
            self.convert(plan, now);
        }
    }

    #[cold]
    fn convert(&mut self, plan: &Plan, now: u64) {
        if self.format.tags != plan.format.tags {
            let states = self.states.iter().cloned();
            let mut old: Vec<(&LimitTag, Option<State>)> =
                self.format.tags.iter().zip(states).map(|(tag, state)| (tag, Some(state))).collect();
            let limits = plan.format.tags.iter().zip(&plan.rules).zip(plan.policy.limits());
            let taken = limits.map(|((tag, rule), limit)| {
                let same = old.iter_mut().find(|(other, state)| state.is_some() && other.is_same_limit(tag));
                match same {
                    Some((other, state)) => match state.take() {
                        Some(mut state) => {
                            if other.bucket_count != tag.bucket_count {
                                rule.rescale(&mut state, (other.bucket_count, limit.period().micros()), now);
                            }
                            state
                        }
                        None => rule.fresh(),
                    },
                    None => rule.fresh(),
                }
            });
            self.states = taken.collect();
        }
        self.format = Arc::clone(&plan.format);
    }

    /// Reads the usage as this version of the policy does. When all that is stored is over, buckets that do not start full
    /// begin anew.
    pub(in crate::store::memory) fn read_as(&mut self, plan: &Plan, now: u64) {
        self.convert_if_other(plan, now);
        if plan.grace > 0 && self.expiry(plan) <= now {
            for (rule, state) in plan.rules.iter().zip(&mut self.states) {
                if rule.grace() > 0 {
                    *state = rule.fresh();
                }
            }
        }
    }
}
