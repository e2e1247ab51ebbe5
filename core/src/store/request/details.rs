//! What only few operations have beside their cost.

use std::sync::Arc;

use crate::algorithm::HoldId;
use crate::plan::Amounts;

/// What only few operations have beside their cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Details {
    /// What the journal keeps of it.
    pub(crate) meta: Option<Box<[u8]>>,
    /// What it takes of each limit; empty where that is the cost of all.
    pub(crate) amounts: Amounts,
    /// Where its caller stands among those who wait.
    pub(crate) line: Option<LinePlace>,
}

/// The bits of a number in the line that are not the rank of a class.
pub(crate) const RANK_SHIFT: u32 = 48;

/// For how many microseconds a caller stays in the line without asking.
pub(crate) const PATIENCE: u64 = 1_000_000;

/// Where a caller stands among those who wait for a key in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePlace {
    /// The number of the callers of its class in this process, of which only the first one asks. Its upper bits are the rank of the
    /// class.
    pub(crate) waiter: HoldId,
    /// For how many microseconds it has waited.
    pub(crate) age: u64,
    /// For how many the caller behind it has, of its class in this process, where there is one.
    pub(crate) next_age: Option<u64>,
}

impl Details {
    /// `None` where there is nothing.
    #[inline]
    pub(crate) fn shared(self) -> Option<Arc<Self>> {
        (self.meta.is_some() || !self.amounts.is_empty() || self.line.is_some()).then(|| Arc::new(self))
    }
}
