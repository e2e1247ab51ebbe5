//! Calls on the thread of the caller.

use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::{AsPolicy, Call, CheckOptions, Limiter, give_nothing_back, valid_cost};
use crate::store::request::{Entry, Operation};

/// What hosts call of a [`Limiter`].
pub trait HostLimiter {
    /// Makes a call on this thread.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision>;

    /// Makes a call whose answer needs no waiting. Nothing was done when there is no answer: then [`HostLimiter::call`]
    /// waits for it, and a host with a lock of its own releases that meanwhile.
    fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>>;

    /// Whether calls may have to wait for a server.
    #[must_use]
    fn waits(&self) -> bool;

    /// As its `waiting`, and what is wrong with a policy or a key is an error.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid` and `closed`, as of any call.
    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize>;
}

impl HostLimiter for Limiter {
    fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        Self::call(self, &policy, key, call)
    }

    #[inline]
    fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>> {
        if let Call::Check(CheckOptions { cost, meta: None, partial: false }) = call {
            return try_immediate_check(self, &policy, key, *cost);
        }
        let (plan, operation) = match self.core.planned(&policy, key, call) {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, operation };
        let answer = self.core.store.try_immediate(&entry, self.core.context())?;
        let operation = entry.operation;
        Some(self.core.answers.decided(plan, key, &operation, answer))
    }

    fn waits(&self) -> bool {
        self.core.layers.is_some()
    }

    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize> {
        self.core.waiting(&policy, key)
    }
}

/// What `try_immediate` does with a plain check, as `Limiter::check` does it.
#[inline]
fn try_immediate_check(limiter: &Limiter, policy: &impl AsPolicy, key: &str, cost: u64) -> Option<Result<Decision>> {
    let plan = valid_cost(cost).and_then(|_| limiter.core.plan(policy, key));
    let plan = match plan.and_then(|plan| give_nothing_back("check", &plan).map(|()| plan)) {
        Ok(plan) => plan,
        Err(error) => return Some(Err(error)),
    };
    let result = {
        let entry = Entry { plan: &plan, key, operation: Operation::Check { cost, hold: 0, meta: None } };
        limiter.core.store.try_immediate(&entry, limiter.core.context())?
    };
    limiter.core.answers.count(&plan, key, &result);
    Some(result.map(|answer| Decision::new(limiter.core.id, plan, key, cost, answer)))
}
