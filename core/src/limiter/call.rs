//! Calls about one policy and key, as data, and the one way that all of them take: the policy is found, the store is asked, the answer
//! is counted, callers that wait for units which went back are woken, and the answer becomes a Decision. The limiters differ only in
//! how they wait for the store.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::WaitQueues;
use super::operations::{CheckOptions, block_operation, check_operation, decided, valid_cost};
use super::policy_ref::AsPolicy;
use super::{LimiterCore, LimiterId};
use crate::counting::DecisionCounts;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::store::request::{Answer, Operation};

/// A call about one policy and key that a Decision answers.
#[derive(Debug, Clone)]
pub enum Call {
    /// Asks and consumes.
    Check(CheckOptions),
    /// As a check, of any policy: no call gives back what it takes of a `concurrency` limit, as if its caller had ended. For
    /// simulations, whose requests take no time.
    Unheld(u64),
    /// Asks without consuming.
    Peek(u64),
    /// Consumes even past the limit.
    Charge(u64),
    /// Gives units back.
    Refund(u64),
    /// Denies the key for that long.
    Block(Duration),
    /// Ends a block.
    Unblock,
    /// Forgets the usage and ends a block.
    Clear,
}

impl Call {
    fn operation(&self, plan: &Plan) -> Result<Operation> {
        Ok(match self {
            Self::Check(options) => check_operation(options, plan)?,
            Self::Unheld(cost) => Operation::Check { cost: valid_cost(*cost)?, hold: 0, meta: None },
            Self::Peek(cost) => Operation::Peek { cost: valid_cost(*cost)? },
            Self::Charge(cost) => Operation::Charge { cost: valid_cost(*cost)? },
            Self::Refund(cost) => Operation::Refund { cost: valid_cost(*cost)? },
            Self::Block(length) => block_operation(*length)?,
            Self::Unblock => Operation::Block { micros: 0 },
            Self::Clear => Operation::Clear,
        })
    }
}

/// What answers come to. Checks that wait for the store keep it, and not the limiter: a limiter that is dropped closes.
pub(crate) struct Answers {
    pub(super) limiter: LimiterId,
    pub(crate) decisions: DecisionCounts,
    pub(super) wait_queues: WaitQueues,
}

impl Answers {
    /// Counts an answer, wakes callers that wait for units which went back, and makes a Decision of it. Units may have gone back
    /// behind an error too.
    #[inline(always)]
    pub(crate) fn decided(
        &self,
        plan: Arc<Plan>,
        key: &str,
        operation: &Operation,
        answer: Result<Answer>,
    ) -> Result<Decision> {
        if operation.frees() {
            self.wait_queues.given_back(&plan, key);
        }
        let answer = answer?;
        self.decisions.count(&plan, key, operation, &answer);
        Ok(decided(self.limiter, plan, key, operation, answer))
    }

    /// Counts the answer to a check, where it lies: to move it first costs more than to count it.
    #[inline(always)]
    pub(crate) fn count(&self, plan: &Plan, key: &str, answer: &Result<Answer>) {
        if let Ok(answer) = answer {
            self.decisions.count_check(plan, key, answer);
        }
    }
}

impl LimiterCore {
    /// The plan for a call, and what the call does with it.
    #[inline]
    pub(crate) fn planned(
        &self,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        call: &Call,
    ) -> Result<(Arc<Plan>, Operation)> {
        let plan = self.plan(policy, key)?;
        let operation = call.operation(&plan)?;
        Ok((plan, operation))
    }
}
