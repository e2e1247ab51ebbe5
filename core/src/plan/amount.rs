//! The units that a call takes of each limit of its policy.

use smallvec::SmallVec;

use crate::algorithm::{AskedOf, LearnedLimits, Rule, State, View};

/// The units that a call takes of one limit, and the units that have to stay free beside them. A limit with 0 units is
/// neither asked nor charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) units: u64,
    pub(crate) reserve: u64,
}

/// The amounts of a call for each limit, in their order.
pub(crate) type Amounts = SmallVec<[Amount; 3]>;

impl Amount {
    /// So many units, without a reserve.
    #[inline(always)]
    pub(crate) const fn of(units: u64) -> Self {
        Self { units, reserve: 0 }
    }

    /// The units that have to be free in the limit.
    #[inline(always)]
    pub(crate) const fn asked(self) -> u64 {
        self.units + self.reserve
    }

    /// The same amount, with the reserve for the key's learned limits added.
    pub(crate) fn beside(self, learned: &LearnedLimits, index: usize, rule: &Rule, now: u64) -> Self {
        Self { reserve: self.reserve + learned.reserve(index, (rule.capacity(), self.units), now, now), ..self }
    }

    /// The view for a call that takes this amount beside the learned limits of the key. The call may be admitted
    /// earlier if others use less. `used` units count in the limit.
    pub(crate) fn view_beside(
        self,
        learned: &LearnedLimits,
        view: View,
        (index, rule): (usize, &Rule),
        used: u64,
        now: u64,
    ) -> View {
        let asked = AskedOf { capacity: rule.capacity(), units: self.units, reserve: self.reserve };
        learned.view(view, index, used, asked, now)
    }

    #[inline]
    pub(crate) fn is_admitted(self, rule: &Rule, state: &State, now: u64) -> bool {
        self.units == 0 || rule.admits(state, now, self.asked())
    }

    /// The view of the limit for this call, which has just charged `charged` units of it.
    #[inline(always)]
    pub(crate) fn view(self, rule: &Rule, state: &State, now: u64, charged: u64) -> View {
        let view = rule.view(state, now, self.asked().max(1), charged);
        if self.units > 0 && self.reserve == 0 { view } else { self.seen(view, now) }
    }

    /// A view as this call sees it. Reserved units are not there for it, and a limit that it does not ask never refuses.
    #[cold]
    pub(crate) fn seen(self, view: View, now: u64) -> View {
        let left = if view.left > 0 { view.left.saturating_sub_unsigned(self.reserve).max(0) } else { view.left };
        match self.units {
            0 => View { left, admits_at: Some(now), delay: 0, ..view },
            _ => View { left, ..view },
        }
    }
}
