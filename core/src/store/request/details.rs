//! The parts beside the cost that few operations have.

use std::sync::Arc;

use crate::algorithm::HoldId;
use crate::plan::Amounts;

/// The parts beside the cost that few operations have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Details {
    /// The metadata for the journal.
    pub(crate) meta: Option<Box<[u8]>>,
    /// The amount of each limit. Empty if that is the cost for all.
    pub(crate) amounts: Amounts,
    /// The place of its caller in the line.
    pub(crate) line: Option<LinePlace>,
}

/// The bits of a caller's number in the line, below the rank of its class.
pub(crate) const RANK_SHIFT: u32 = 48;

/// For how many microseconds a caller stays in the line without asking.
pub(crate) const PATIENCE: u64 = 1_000_000;

/// The place of a caller in the line of all processes for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePlace {
    /// The number that the callers of its class in this process share, because only the first of them asks. Its upper
    /// bits are the rank of the class.
    pub(crate) waiter: HoldId,
    /// The microseconds that it has waited.
    pub(crate) age: u64,
    /// The same for the next caller of its class in this process, if there is one.
    pub(crate) next_age: Option<u64>,
}

impl Details {
    /// `None` if there are no details.
    #[inline]
    pub(crate) fn shared(self) -> Option<Arc<Self>> {
        (self.meta.is_some() || !self.amounts.is_empty() || self.line.is_some()).then(|| Arc::new(self))
    }
}
