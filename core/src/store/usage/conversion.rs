//! Reads a usage that another version of the policy has stored.

use std::sync::Arc;

use super::Usage;
use crate::algorithm::Rule;
use crate::plan::{Plan, StoredLimit};
use crate::store::request::States;

impl Usage {
    /// Converts a usage that another version of the policy has stored, limit by limit.
    #[inline]
    fn convert_if_other(&mut self, plan: &Plan, now: u64) {
        if !Arc::ptr_eq(&self.format, &plan.format) {
            self.convert(plan, now);
        }
    }

    #[cold]
    fn convert(&mut self, plan: &Plan, now: u64) {
        if self.format.tags != plan.format.tags {
            let own = self.format.tags.iter().zip(&self.states);
            let own = own.map(|(tag, state)| StoredLimit::new(tag, state));
            let others = self.annex().map(|annex| annex.others.clone()).unwrap_or_default();
            let mut stored: Vec<StoredLimit> = own.chain(others).collect();
            self.states = plan.converted(&mut stored, now);
            let others = StoredLimit::kept(stored, now);
            if self.rare.is_some() || !others.is_empty() {
                self.change_annex(|annex| {
                    annex.others = others;
                    annex.learned.iter_mut().for_each(|learned| learned.forget_places());
                });
            }
        }
        self.format = Arc::clone(&plan.format);
    }

    /// The states as this version of the policy reads them, bounded in size. Nothing is changed.
    pub(in crate::store) fn bounded_states(&mut self, plan: &Plan, now: u64) -> States {
        let other = !Arc::ptr_eq(&self.format, &plan.format) || plan.grace > 0;
        let before = other.then(|| self.stored_state());
        if other {
            self.read_as(plan, now);
        }
        let states = self.states.iter().map(|state| Rule::bounded(state).unwrap_or_else(|| state.clone())).collect();
        if let Some(before) = before {
            self.restore(before);
        }
        states
    }

    /// Goes on with these numbers from now on.
    pub(in crate::store) fn adopt_numbers(&mut self, plan: &Plan, now: u64) {
        self.read_as(plan, now);
        self.refresh_expiry(plan, now);
    }

    /// Reads the usage as this version of the policy does. If everything stored is over, buckets that do not start full
    /// begin anew.
    pub(in crate::store) fn read_as(&mut self, plan: &Plan, now: u64) {
        self.convert_if_other(plan, now);
        if plan.grace > 0 && self.meaning_ends(plan) <= now {
            for (rule, state) in plan.rules.iter().zip(&mut self.states) {
                if rule.grace() > 0 {
                    *state = rule.fresh();
                }
            }
        }
    }
}
