//! The calls about one policy and key that a Decision answers, as data.

use crate::error::Result;
use crate::limiter::{CheckOptions, check_operation, valid_cost};
use crate::policy::Policy;
use crate::store::request::Operation;

/// A call about one policy and key that a Decision answers.
#[derive(Debug, Clone)]
pub enum Call {
    /// Asks and consumes.
    Check(CheckOptions),
    /// Asks without consuming.
    Peek(u64),
    /// Consumes even past the limit.
    Charge(u64),
    /// Consumes what work has cost beyond its check.
    Surcharge(u64),
    /// Gives units back.
    Refund(u64),
}

impl Call {
    pub(super) fn operation(&self, policy: &Policy) -> Result<Operation> {
        Ok(match self {
            Self::Check(options) => check_operation(options, policy)?,
            Self::Peek(cost) => Operation::Peek { cost: valid_cost(*cost)? },
            Self::Charge(cost) => Operation::Charge { cost: valid_cost(*cost)? },
            Self::Surcharge(cost) => Operation::Surcharge { cost: valid_cost(*cost)? },
            Self::Refund(cost) => Operation::Refund { cost: valid_cost(*cost)? },
        })
    }
}
