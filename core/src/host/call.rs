//! The calls about one policy and key that a Decision answers, as data.

use crate::error::Result;
use crate::limiter::{CheckOptions, check_operation, valid_cost};
use crate::plan::Plan;
use crate::store::request::Operation;

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
}

impl Call {
    pub(super) fn operation(&self, plan: &Plan) -> Result<Operation> {
        Ok(match self {
            Self::Check(options) => check_operation(options, plan)?,
            Self::Unheld(cost) => Operation::Check { cost: valid_cost(*cost)?, hold: 0, meta: None },
            Self::Peek(cost) => Operation::Peek { cost: valid_cost(*cost)? },
            Self::Charge(cost) => Operation::Charge { cost: valid_cost(*cost)? },
            Self::Refund(cost) => Operation::Refund { cost: valid_cost(*cost)? },
        })
    }
}
