//! The four calls about one policy and key that a Decision answers, as data: for hosts that choose at run time what is
//! asked, and where.

use super::{AsPolicy, CheckOptions, Limiter, check_op, decided, valid_cost};
use crate::decision::Decision;
use crate::error::Result;
use crate::store::{Entry, Op};

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
    pub(super) fn op(&self) -> Result<Op> {
        Ok(match self {
            Self::Check(options) => check_op(options)?,
            Self::Peek(cost) => Op::Peek { cost: valid_cost(*cost)? },
            Self::Charge(cost) => Op::Charge { cost: valid_cost(*cost)? },
            Self::Refund(cost) => Op::Refund { cost: valid_cost(*cost)? },
        })
    }
}

impl Limiter {
    /// Makes a call on this thread.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    pub fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        let decision = self.decide(&policy, key, call.op()?)?;
        if matches!(call, Call::Refund(_)) {
            self.inner.lines.given_back(decision.plan(), key);
        }
        Ok(decision)
    }

    /// Makes a call whose answer needs no waiting. Nothing was done when there is none: then [`Limiter::call`] waits for
    /// it, and a host with a lock of its own gives it up meanwhile.
    #[inline]
    pub fn at_hand(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>> {
        if let Call::Check(CheckOptions { cost, meta: None }) = call {
            return self.check_at_hand(&policy, key, *cost);
        }
        let (plan, op) = match self.inner.plan(&policy, key).and_then(|plan| Ok((plan, call.op()?))) {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, op };
        let answer = self.inner.store.at_hand(&entry, self.inner.now())?;
        let op = entry.op;
        if matches!(op, Op::Refund { .. }) {
            self.inner.lines.given_back(&plan, key);
        }
        Some(answer.map(|answer| decided(plan, key, &op, answer)))
    }

    /// What `at_hand` does with a plain check, as `consume` does it.
    #[inline]
    fn check_at_hand(&self, policy: &impl AsPolicy, key: &str, cost: u64) -> Option<Result<Decision>> {
        let plan = match valid_cost(cost).and_then(|_| self.inner.plan(policy, key)) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, op: Op::Check { cost, hold: 0, meta: None } };
        let answer = match self.inner.store.at_hand(&entry, self.inner.now())? {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error)),
        };
        let charged = if answer.applied { cost } else { 0 };
        drop(entry);
        Some(Ok(Decision::new(plan, key, cost, charged, answer)))
    }
}
