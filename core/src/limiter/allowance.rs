//! A check for a caller that needs no Decision.

use std::sync::Arc;
use std::time::Duration;

use super::cost::valid_cost;
use super::policy_ref::AsPolicy;
use super::{AsyncLimiter, Limiter, LimiterCore};
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::store::request::SimpleAnswer;

/// The answer of [`Limiter::allows`](crate::Limiter::allows): the few parts of a Decision that most callers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allowance {
    /// True if the call is admitted.
    pub allowed: bool,
    /// The units that the binding limit would admit now. 0 while the key is blocked.
    pub remaining: u64,
    /// The time until the same check is admitted, if no other call uses the key: zero when allowed, `None` for never.
    pub retry_after: Option<Duration>,
}

impl From<&Decision> for Allowance {
    fn from(decision: &Decision) -> Self {
        Self { allowed: decision.allowed(), remaining: decision.remaining(), retry_after: decision.retry_after() }
    }
}

impl Allowance {
    #[inline(always)]
    fn of(answer: &SimpleAnswer, plan: &Plan) -> Self {
        let allowed = answer.applied || plan.policy.options().shadow;
        let wait = |at: u64| Duration::from_micros(at.saturating_sub(answer.now));
        let retry_after = if allowed { Some(Duration::ZERO) } else { answer.view.admits_at.map(wait) };
        Self { allowed, remaining: answer.view.remaining(), retry_after }
    }
}

impl LimiterCore {
    /// Makes and counts a check of a policy with one limit. True if the store answered it at once.
    #[inline(always)]
    pub(super) fn simple_check(&self, plan: &Arc<Plan>, key: &str, cost: u64, answer: &mut SimpleAnswer) -> bool {
        if !plan.is_simple || !plan.is_plain || self.answers.overrides.concern(plan) {
            return false;
        }
        let is_answered = self.store.try_simple_check(plan, key, cost, self.now(), answer);
        if is_answered {
            self.answers.decisions.count_simple(plan, key, answer);
        }
        is_answered
    }

    /// The same for a caller that needs no Decision. `None` if that takes more.
    #[inline(always)]
    pub(super) fn simple_allowance(
        &self,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        cost: u64,
    ) -> Result<Option<Allowance>> {
        self.with_plan(policy, key, |plan| {
            let mut answer = SimpleAnswer::default();
            self.simple_check(plan, key, cost, &mut answer).then(|| Allowance::of(&answer, plan))
        })
    }
}

impl Limiter {
    /// As [`Self::check`], for a caller that needs no Decision. It takes less time if the store is in memory.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::builder().policy("mail", "2/minute")?.build()?;
    /// let allowance = limiter.allows("mail", "alice")?;
    /// assert!(allowance.allowed);
    /// assert_eq!(allowance.remaining, 1);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::check`].
    #[inline]
    pub fn allows(&self, policy: impl AsPolicy, key: &str) -> Result<Allowance> {
        self.allows_n(policy, key, 1)
    }

    /// As [`Self::check_n`], for a caller that needs no Decision.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    #[inline]
    pub fn allows_n(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Allowance> {
        match self.core.simple_allowance(&policy, key, valid_cost(cost)?)? {
            Some(allowance) => Ok(allowance),
            None => self.consume(policy, key, cost).map(|decision| Allowance::from(&decision)),
        }
    }
}

impl AsyncLimiter {
    /// As [`Self::check`], for a caller that needs no Decision. It takes less time if the store is in memory.
    ///
    /// # Errors
    /// As [`Self::check`].
    ///
    /// # Cancel safety
    /// As [`Self::check`].
    pub async fn allows(&self, policy: impl AsPolicy, key: &str) -> Result<Allowance> {
        self.allows_n(policy, key, 1).await
    }

    /// As [`Self::check_n`], for a caller that needs no Decision.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    ///
    /// # Cancel safety
    /// As [`Self::check`].
    pub async fn allows_n(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Allowance> {
        match self.core.simple_allowance(&policy, key, valid_cost(cost)?)? {
            Some(allowance) => Ok(allowance),
            None => self.consume(policy, key, cost).await.map(|decision| Allowance::from(&decision)),
        }
    }
}
