//! The short way of nearly every call: a check of so many units, and nothing else. All other calls take the usual way.

use std::sync::Arc;

use compact_str::CompactString;

use super::call::{Call, NoCompletion, gone};
use super::cost::valid_cost;
use super::operations::{CheckOptions, check_operation};
use super::policy_ref::AsPolicy;
use super::spans::{SpanName, may_be_on};
use super::{Limiter, LimiterCore};
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::plan::plan_cache;
use crate::store::call_context::{MakeCompletion, Waits};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, ChangedOverride, Entry, Operation, SimpleAnswer};

impl Limiter {
    #[inline]
    pub(super) fn consume(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        if may_be_on() {
            return self.spanned(SpanName::Check, &policy, key, &Call::Plain(cost));
        }
        self.core.check(&policy, key, cost, Waits::Here).unwrap_or_else(|| Err(gone()))
    }
}

impl LimiterCore {
    /// Makes a plain check for a caller that does not go on. `None` if the caller does not wait and nothing was done.
    #[inline(always)]
    pub(crate) fn check(
        self: &Arc<Self>,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        cost: u64,
        waits: Waits<MakeCompletion<'_, Answer>>,
    ) -> Option<Result<Decision>> {
        let made = valid_cost(cost).and_then(|cost| {
            self.with_plan(policy, key, |plan| {
                let mut answer = SimpleAnswer::default();
                if self.simple_check(plan, key, cost, &mut answer) {
                    return Some(Ok(Decision::of_simple(self.id, plan, key, cost, &answer)));
                }
                self.check_in_full(plan_cache::handle(plan), key, cost, waits)
            })
        });
        made.unwrap_or_else(|error| Some(Err(error)))
    }

    /// A plain check with more than the answer of one limit. Entry and answer move as little as possible, and the
    /// answer is counted in its place.
    #[inline(never)]
    fn check_in_full(
        self: &Arc<Self>,
        plan: Arc<Plan>,
        key: &str,
        cost: u64,
        waits: Waits<MakeCompletion<'_, Answer>>,
    ) -> Option<Result<Decision>> {
        if !plan.is_plain || self.answers.overrides.concern(&plan) {
            return self.check_rare(plan, key, cost, waits.is_never());
        }
        let decided_key = CompactString::from(key);
        let answer = {
            let entry = Entry { plan: &plan, key, operation: Operation::check(cost) };
            self.store.begin(&entry, self.context().waiting(waits), &mut LayerStates::default())?
        };
        if let Ok(answer) = &answer {
            if let Some(ChangedOverride::To(text)) = answer.changed_override() {
                return match self.answers.overrides.learn(&plan, key, text) {
                    Ok(_) => self.check_rare(plan, key, cost, waits.is_never()),
                    Err(error) => Some(Err(error)),
                };
            }
            self.answers.decisions.count_check(&plan, key, answer);
        }
        Some(answer.map(|answer| Decision::new(self.id, plan, decided_key, cost, answer)))
    }

    /// The same for a policy that is not checked as most are.
    #[cold]
    fn check_rare(self: &Arc<Self>, plan: Arc<Plan>, key: &str, cost: u64, never: bool) -> Option<Result<Decision>> {
        let waits = if never { Waits::<NoCompletion>::Never } else { Waits::Here };
        match check_operation(&CheckOptions::of_cost(cost), &plan) {
            Ok(operation) => self.run(plan, key, operation, waits),
            Err(error) => Some(Err(error)),
        }
    }
}
