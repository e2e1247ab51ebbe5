//! The notations that were parsed. They are bounded in bytes, because a program may build notations from the input of
//! its clients.

use std::collections::HashMap;
use std::sync::Arc;

use crate::process::lock::InheritedRwLock;
use foldhash::fast::RandomState;

use crate::plan::Plan;
use crate::plan::plan_cache;
use crate::policy::Policy;
use crate::tables::allocation::allocated;

/// The longest notation that is found by its text, in bytes. The canonical notation of nearly every policy is shorter.
/// Each call parses a longer one, and finds its plan by its canonical notation.
const MAX_TEXT: usize = 512;
/// The most bytes of all notations with their plans. A policy of one limit takes about 1.5 kB.
const MAX_BYTES: usize = 16 << 20;
/// The bytes of an entry beside its text and its plan: its place in a map that is half empty.
const ENTRY_BYTES: usize = 80;

#[derive(Debug, Default, Clone)]
struct ParsedNotations {
    plans: HashMap<Box<str>, Arc<Plan>, RandomState>,
    bytes: usize,
}

/// Finds the policy of a notation without parsing it again.
#[derive(Debug, Default)]
pub(super) struct Notations(InheritedRwLock<ParsedNotations>);

impl Notations {
    #[inline]
    pub(super) fn find(&self, text: &str) -> Option<Arc<Plan>> {
        self.0.read().plans.get(text).map(plan_cache::handle)
    }

    /// Keeps the policy of a text, and returns its plan. Equal policies share a plan, so that entries about keys in
    /// other tables do not hold a plan each.
    pub(super) fn keep(&self, text: &str, policy: &Policy) -> Arc<Plan> {
        let plan = self.canonical(policy);
        if text.len() <= MAX_TEXT && text != policy.name() {
            self.insert(text, &plan);
        }
        plan
    }

    /// The plan of a policy without a name. The canonical notation stands for its name.
    fn canonical(&self, policy: &Policy) -> Arc<Plan> {
        let known = self.0.read().plans.get(policy.name()).map(plan_cache::handle);
        known.filter(|plan| plan.policy == *policy).unwrap_or_else(|| {
            let plan = plan_cache::plan_of(policy);
            self.insert(policy.name(), &plan);
            plan
        })
    }

    fn insert(&self, text: &str, plan: &Arc<Plan>) {
        let bytes = ENTRY_BYTES + allocated(text.len()) + if text == plan.policy.name() { plan.bytes() } else { 0 };
        let mut parsed = self.0.write();
        if parsed.bytes + bytes > MAX_BYTES {
            // The next call parses a notation again that is still in use.
            *parsed = ParsedNotations::default();
        }
        if parsed.plans.insert(text.into(), Arc::clone(plan)).is_none() {
            parsed.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(notations: &Notations, text: &str) -> Arc<Plan> {
        notations.find(text).unwrap_or_else(|| notations.keep(text, &Policy::parse(text).expect(text)))
    }

    #[test]
    fn a_long_notation_is_not_kept_and_shares_the_plan_of_its_canonical_notation() {
        let notations = Notations::default();
        for number in 1..1_000 {
            plan_of(&notations, &format!("{}{number}/minute", " ".repeat(60_000)));
        }
        assert!(notations.0.read().bytes < 3_000_000, "{} bytes", notations.0.read().bytes);
        let (long, short) =
            (plan_of(&notations, &format!("7/minute{}", " ".repeat(60_000))), plan_of(&notations, "7/m"));
        assert!(Arc::ptr_eq(&long, &short));
    }

    #[test]
    fn notations_stay_within_their_bytes_and_the_newest_is_always_kept() {
        let notations = Notations::default();
        for number in 1..100_000 {
            let text = format!("{number}/minute; {number}/hour; gcra {number}/day");
            let plan = plan_of(&notations, &text);
            assert!(Arc::ptr_eq(&plan, &plan_of(&notations, &text)));
            let parsed = notations.0.read();
            assert!(parsed.bytes <= MAX_BYTES, "{} bytes for {} notations", parsed.bytes, parsed.plans.len());
        }
        let parsed = notations.0.read();
        let measured: usize = parsed
            .plans
            .iter()
            .map(|(text, plan)| {
                ENTRY_BYTES + allocated(text.len()) + if **text == *plan.policy.name() { plan.bytes() } else { 0 }
            })
            .sum();
        assert_eq!(parsed.bytes, measured);
    }
}
