//! The charge of a call.

use smallvec::SmallVec;

use crate::algorithm::{LimitCharge, Traces};
use crate::plan::Plan;

/// The units that one call has consumed, with all that is needed to give them back. docs/adr/0028 has the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Charge {
    /// When it was made, by the time of the store.
    pub(crate) at: u64,
    /// For how long after that the units of a lease could be spent.
    pub(crate) life: u64,
    /// The generation of the key that a lease is for. 0: any.
    pub(crate) generation: u64,
    /// The connection over which a lease was granted, or the epoch of its store. 0: any.
    pub(crate) connection: u64,
    /// The block of this process from which the units were spent. 0 if the store was asked.
    pub(crate) block: u32,
    /// The units that it charged. 0 if that is not known.
    pub(crate) units: u64,
    /// The units that had gone back then, as [`Traces`] count them, and the last clear that was known then.
    pub(crate) refunded: u64,
    pub(crate) cleared_at: u64,
    /// True if it undoes a check: no call used its units.
    pub(crate) is_undone: bool,
    /// True if it goes back only when nothing was charged after it.
    pub(crate) is_last: bool,
    /// The units that go back to each limit, and those that were charged, if they are not the same for all.
    pub(crate) amounts: SmallVec<[ChargedAmount; 2]>,
    /// For each charged limit of the policy, when its bucket would have been empty again. 0 if that is not known.
    pub(crate) limits: SmallVec<[Option<u64>; 2]>,
}

/// The units that go back to a limit, and those that a call has charged to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChargedAmount {
    pub(crate) back: u64,
    pub(crate) charged: u64,
}

impl Charge {
    /// A charge with only its moment known.
    pub(crate) fn at(plan: &Plan, at: u64) -> Self {
        Self { at, limits: plan.rules.iter().map(|_| Some(0)).collect(), ..Self::default() }
    }

    /// The charge of one limit, for giving its units back. `None` if the limit was not charged, or gets none back.
    pub(crate) fn of_limit(&self, index: usize, units: u64, traces: &Traces) -> Option<LimitCharge> {
        let empty_at = self.limits.get(index).copied().flatten()?;
        let ChargedAmount { back: units, charged } =
            self.amounts.get(index).copied().unwrap_or(ChargedAmount { back: units, charged: self.units });
        if units == 0 {
            return None;
        }
        Some(LimitCharge {
            units,
            charged,
            at: self.at,
            life: self.life,
            empty_at,
            refunded: traces.refunded_since(self.at, self.refunded),
            refunds_since: traces.refunded_at >= self.at,
            is_undone: self.is_undone,
        })
    }

    /// True if the key was cleared since.
    pub(crate) fn was_cleared(&self, traces: &Traces) -> bool {
        traces.cleared_at >= self.at && traces.cleared_at != self.cleared_at
    }
}
