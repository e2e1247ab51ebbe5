//! The short way of nearly every call: a check of so many units, and nothing else. What takes more goes the way of every call.

use std::sync::Arc;

use compact_str::CompactString;

use super::LimiterCore;
use super::caller::{DecisionWait, NoCompletion};
use super::cost::valid_cost;
use super::operations::{CheckOptions, check_operation};
use super::policy_ref::AsPolicy;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::store::call_context::Waits;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Moved, Operation};

impl LimiterCore {
    /// Makes a plain check for a caller that does not go on. Entry and answer move as little as can be, and the answer is counted
    /// where it lies: to copy what was just written stalls the CPU.
    #[inline(always)]
    pub(crate) fn check(
        self: &Arc<Self>,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        cost: u64,
        waits: Waits<'_, Answer>,
    ) -> Option<Result<Decision>> {
        let plan = match self.plan(policy, key) {
            Ok(plan) if plan.is_plain && !self.answers.overrides.concern(&plan) => plan,
            Ok(plan) => return self.check_rare(plan, key, cost, waits.is_never()),
            Err(error) => return Some(Err(error)),
        };
        let decided_key = CompactString::from(key);
        if let Some(answer) = self.simple_check(&plan, key, cost) {
            return Some(Ok(Decision::new(self.id, plan, decided_key, cost, answer.into())));
        }
        let answer = {
            let entry = Entry { plan: &plan, key, operation: Operation::check(cost) };
            self.store.begin(&entry, self.context().waiting(waits), &mut LayerStates::default())?
        };
        if let Ok(answer) = &answer {
            if let Some(Moved::To(text)) = answer.moved() {
                return match self.answers.overrides.learn(&plan, key, text) {
                    Ok(_) => self.check_rare(plan, key, cost, waits.is_never()),
                    Err(error) => Some(Err(error)),
                };
            }
            self.answers.decisions.count_check(&plan, key, answer);
        }
        Some(answer.map(|answer| Decision::new(self.id, plan, decided_key, cost, answer)))
    }

    /// Makes a plain check whose answer needs no waiting: nothing was done when there is none.
    #[inline(always)]
    pub(super) fn try_check(
        self: &Arc<Self>,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        cost: u64,
    ) -> Option<Result<Decision>> {
        match valid_cost(cost) {
            Ok(cost) => self.check(policy, key, cost, Waits::Never),
            Err(error) => Some(Err(error)),
        }
    }

    /// The same for a policy that is not checked as most are.
    #[cold]
    fn check_rare(self: &Arc<Self>, plan: Arc<Plan>, key: &str, cost: u64, never: bool) -> Option<Result<Decision>> {
        let caller = if never { DecisionWait::<NoCompletion>::Never } else { DecisionWait::Here };
        match check_operation(&CheckOptions::of_cost(cost), &plan) {
            Ok(operation) => self.run(plan, key, operation, caller),
            Err(error) => Some(Err(error)),
        }
    }
}
