//! From the arguments of a call to the operation of a store, and from its answer to a Decision.

use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;

use crate::algorithm::MAX_SAFE_INTEGER;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{MAX_METADATA, Plan};
use crate::store::request::{Answer, Operation};

/// The longest metadata of an attempt, in bytes.
pub const MAX_META: usize = MAX_METADATA;

/// The options of a check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Units it consumes.
    pub cost: u64,
    /// What the journal keeps of it.
    pub meta: Option<Vec<u8>>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { cost: 1, meta: None }
    }
}

/// # Errors
/// `cost_invalid` for a cost that is out of range.
#[inline]
pub(crate) fn valid_cost(cost: u64) -> Result<u64> {
    if cost == 0 || cost > MAX_SAFE_INTEGER {
        return Err(Error::new(
            ErrorKind::CostInvalid,
            format!("a cost of {cost} is out of range: it must be a whole number from 1 to 2^53 - 1"),
        ));
    }
    Ok(cost)
}

pub(crate) fn check_operation(options: &CheckOptions) -> Result<Operation> {
    let cost = valid_cost(options.cost)?;
    if let Some(meta) = options.meta.as_ref().filter(|meta| meta.len() > MAX_META) {
        return Err(Error::config(format!("meta has {} bytes: it may have at most {MAX_META}", meta.len())));
    }
    // The script of Redis does not tell empty metadata from none, so both are none everywhere.
    let meta = options.meta.as_deref().filter(|meta| !meta.is_empty());
    Ok(Operation::Check { cost, hold: 0, meta: meta.map(Into::into) })
}

/// The Decision of an answer.
#[inline(always)]
pub(crate) fn decided(
    plan: Arc<Plan>,
    key: impl Into<CompactString>,
    operation: &Operation,
    answer: Answer,
) -> Decision {
    let (cost, charged) = match *operation {
        Operation::Check { cost, .. } => (cost, if answer.applied { cost } else { 0 }),
        Operation::Charge { cost } => (cost, cost),
        Operation::Peek { cost } | Operation::Refund { cost } => (cost, 0),
        _ => (1, 0),
    };
    Decision::new(plan, key, cost, charged, answer)
}

/// What `settle` has to do: charge, refund, or nothing.
pub(crate) fn difference(charged: u64, actual: u64) -> Result<Option<Operation>> {
    if actual > MAX_SAFE_INTEGER {
        valid_cost(actual)?;
    }
    Ok(match actual {
        _ if actual > charged => Some(Operation::Charge { cost: actual - charged }),
        _ if actual < charged => Some(Operation::Refund { cost: charged - actual }),
        _ => None,
    })
}

/// A block's length in microseconds.
pub(super) fn block_operation(length: Duration) -> Result<Operation> {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let longest = Duration::from_secs(3_660 * 86_400);
    if micros == 0 || length > longest {
        return Err(Error::config(format!("a block of {length:?} is out of range: it must be up to 10 years")));
    }
    Ok(Operation::Block { micros })
}
