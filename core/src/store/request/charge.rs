//! What a call has consumed.

use smallvec::SmallVec;

use crate::algorithm::{LimitCharge, Traces};
use crate::plan::Plan;

/// What one call has consumed, as far as it must be known to give it back. docs/adr/0028 has the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Charge {
    /// When, by the time of the store …
    pub(crate) at: u64,
    /// … and for how long after that the units could be spent, of a lease.
    pub(crate) life: u64,
    /// The generation of the key that a lease is for. 0: any.
    pub(crate) generation: u64,
    /// The connection over which a lease was granted. 0: any.
    pub(crate) connection: u64,
    /// The block of this process from which the units were spent; 0 when the store was asked.
    pub(crate) block: u32,
    /// The units that it charged; 0 when that is not known.
    pub(crate) units: u64,
    /// The units that had gone back then, as [`Traces`] count them, and the last clear that was known then.
    pub(crate) refunded: u64,
    pub(crate) cleared_at: u64,
    /// Whether it is the undo of a check: no call used its units.
    pub(crate) is_undone: bool,
    /// Whether it goes back only where nothing was charged behind it.
    pub(crate) is_last: bool,
    /// What goes back to each limit, and what was charged of it, where that is not the same of all.
    pub(crate) amounts: SmallVec<[ChargedAmount; 2]>,
    /// For each limit of the policy that was charged: when its bucket would have been empty again, 0 when that is not known.
    pub(crate) limits: SmallVec<[Option<u64>; 2]>,
}

/// What goes back to a limit, and what a call has charged of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChargedAmount {
    pub(crate) back: u64,
    pub(crate) charged: u64,
}

impl Charge {
    /// A charge of which only its moment is known.
    pub(crate) fn at(plan: &Plan, at: u64) -> Self {
        Self { at, limits: plan.rules.iter().map(|_| Some(0)).collect(), ..Self::default() }
    }

    /// What a limit has to know to give units back; `None` for a limit that was not charged, and for one that gets none.
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

    /// Whether the key was cleared since.
    pub(crate) fn was_cleared(&self, traces: &Traces) -> bool {
        traces.cleared_at >= self.at && traces.cleared_at != self.cleared_at
    }
}
