//! The four calls about one policy and key that a Decision answers, as data: for hosts that choose at run time what is
//! asked, and where.

use super::{AsPolicy, CheckOptions, Limiter, check_operation, decided, valid_cost};
use crate::decision::Decision;
use crate::error::Result;
use crate::store::{Entry, Operation};

/// A call about one policy and key that a Decision answers.
#[derive(Debug, Clone)]
pub enum Call {
    /// Asks and consumes.
    Check(CheckOptions),
    /// Asks.
    Peek(u64),
    /// Consumes even past the limit.
    Charge(u64),
    /// Gives back.
    Refund(u64),
}

impl Call {
    pub(super) fn operation(&self) -> Result<Operation> {
        Ok(match self {
            Self::Check(options) => check_operation(options)?,
            Self::Peek(cost) => Operation::Peek { cost: valid_cost(*cost)? },
            Self::Charge(cost) => Operation::Charge { cost: valid_cost(*cost)? },
            Self::Refund(cost) => Operation::Refund { cost: valid_cost(*cost)? },
        })
    }
}

impl Limiter {
    /// Makes a call on this thread.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    pub fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        let decision = self.decide(&policy, key, call.operation()?)?;
        if matches!(call, Call::Refund(_)) {
            self.inner.lines.given_back(decision.plan(), key);
        }
        Ok(decision)
    }

    /// Makes a call whose answer needs no waiting. Nothing was done when there is none: then [`Limiter::call`] waits for
    /// it, and a host with a lock of its own gives it up meanwhile.
    #[inline]
    pub fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>> {
        if let Call::Check(CheckOptions { cost, meta: None }) = call {
            return self.try_immediate_check(&policy, key, *cost);
        }
        let (plan, operation) = match self.inner.plan(&policy, key).and_then(|plan| Ok((plan, call.operation()?))) {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, operation };
        let answer = self.inner.store.try_immediate(&entry, self.inner.now())?;
        let operation = entry.operation;
        if matches!(operation, Operation::Refund { .. }) {
            self.inner.lines.given_back(&plan, key);
        }
        Some(answer.map(|answer| decided(plan, key, &operation, answer)))
    }

    /// What `try_immediate` does with a plain check, as `consume` does it.
    #[inline]
    fn try_immediate_check(&self, policy: &impl AsPolicy, key: &str, cost: u64) -> Option<Result<Decision>> {
        let plan = match valid_cost(cost).and_then(|_| self.inner.plan(policy, key)) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, operation: Operation::Check { cost, hold: 0, meta: None } };
        let answer = match self.inner.store.try_immediate(&entry, self.inner.now())? {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let charged = if answer.applied { cost } else { 0 };
        drop(entry);
        Some(Ok(Decision::new(plan, key, cost, charged, answer)))
    }
}
