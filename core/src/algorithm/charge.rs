//! What a call has consumed, and how it goes back: exactly what is still counted of it. docs/adr/0028 has the reasons.

/// What is known of a charge of one limit when its units go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LimitCharge {
    /// The units that go back, at most …
    pub(crate) units: u64,
    /// … and all that were charged; 0 when that is not known.
    pub(crate) charged: u64,
    /// When they were charged, by the time of the store …
    pub(crate) at: u64,
    /// … and for how long after that they could be spent, of a lease.
    pub(crate) life: u64,
    /// When the bucket would have been empty again; 0 when that is not known.
    pub(crate) empty_at: u64,
    /// Units that went back since: to a bucket in any way, to a sliding kind by refunds without a Decision.
    pub(crate) refunded: u64,
    /// Whether a refund without a Decision was made since: it took the oldest units, which may be these.
    pub(crate) refunds_since: bool,
    /// Whether the check is undone, whose units no call used. What refunds took of them was meant for units of others.
    pub(crate) is_undone: bool,
}

impl LimitCharge {
    /// The most units that refunds have taken of it.
    pub(super) fn taken_by_refunds(&self) -> u64 {
        if self.refunds_since { self.refunded.min(self.units) } else { 0 }
    }

    /// The units that are certainly left of it, where `counted` are in its entry, granule or window. Refunds take the oldest
    /// units, so they have taken none of these while there are `older` ones.
    pub(super) fn left_of(&self, counted: u64, older: bool) -> u64 {
        counted.min(if older { self.units } else { self.units - self.taken_by_refunds() })
    }

    /// The units of others that go back in place of those that refunds have taken, where `own` go back.
    pub(super) fn in_place(&self, own: u64) -> u64 {
        if self.is_undone && self.refunds_since { self.units - own } else { 0 }
    }
}

/// What a key tells charges that were made before its last clear, or before units went back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traces {
    /// When the key was last cleared.
    pub(crate) cleared_at: u64,
    /// When units last went back without a Decision.
    pub(crate) refunded_at: u64,
    /// Since when the units are counted that went back …
    pub(crate) counted_since: u64,
    /// … and how many they are.
    pub(crate) refunded: u64,
    /// When all has ended that was charged before: from then on there are no traces.
    pub(crate) until: u64,
}

impl Traces {
    /// Those that matter at `now`.
    pub(crate) fn at(self, now: u64) -> Self {
        if self.until > now { self } else { Self::default() }
    }

    /// A clear, of a key whose charges end at `ends`. A second one at the same moment is told from the first.
    pub(crate) fn clear(&mut self, now: u64, ends: u64) {
        let until = self.until.max(ends);
        let cleared_at = now.max(self.cleared_at + 1);
        *self = if until > now { Self { cleared_at, until, ..Self::default() } } else { Self::default() };
    }

    /// So many units went back that charges have to know of, of a key whose charges ended at `ends`.
    pub(crate) fn refund(&mut self, now: u64, ends: u64, units: u64, by_decision: bool) {
        self.until = self.until.max(ends);
        if !by_decision {
            self.refunded_at = now;
        }
        self.counted_since = if self.refunded == 0 { now } else { self.counted_since };
        self.refunded = (self.refunded + units).min(super::MAX_SAFE_INTEGER);
    }

    /// The units that went back since a charge at `at`, which knew of `known`.
    pub(crate) fn refunded_since(&self, at: u64, known: u64) -> u64 {
        self.refunded.saturating_sub(if self.counted_since <= at { known } else { 0 })
    }
}
