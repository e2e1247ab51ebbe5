//! The units that a call has charged, and how those that still count go back. docs/adr/0028 has the reasons.

/// A charge of one limit, as far as it is known when its units go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LimitCharge {
    /// The units that go back, at most …
    pub(crate) units: u64,
    /// … and all charged units, 0 if unknown.
    pub(crate) charged: u64,
    /// The time of the charge by the clock of the store …
    pub(crate) at: u64,
    /// … and, for a lease, the time that a process had to spend them.
    pub(crate) life: u64,
    /// When the bucket would have been empty again, 0 if unknown.
    pub(crate) empty_at: u64,
    /// Units that went back since. For a bucket all of them, for a sliding kind those of refunds without a Decision.
    pub(crate) refunded: u64,
    /// True if a refund without a Decision came since. It took the oldest units, which may be these.
    pub(crate) refunds_since: bool,
    /// True for the undo of a check. No call used its units, so refunds that took some of them meant units of others.
    pub(crate) is_undone: bool,
}

impl LimitCharge {
    /// The most units that refunds have taken of this charge.
    pub(super) fn taken_by_refunds(&self) -> u64 {
        if self.refunds_since { self.refunded.min(self.units) } else { 0 }
    }

    /// The units that are certainly left of it, if its entry, granule or window holds `counted`. Refunds take the
    /// oldest units, so they have taken none of these while there are `older` ones.
    pub(super) fn left_of(&self, counted: u64, older: bool) -> u64 {
        counted.min(if older { self.units } else { self.units - self.taken_by_refunds() })
    }

    /// The units of others that go back for those that refunds have taken, if `own` units of this charge go back.
    pub(super) fn in_place(&self, own: u64) -> u64 {
        if self.is_undone && self.refunds_since { self.units - own } else { 0 }
    }
}

/// The traces that a key keeps for charges from before its last clear, or from before units went back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traces {
    /// The moment of the last clear.
    pub(crate) cleared_at: u64,
    /// The moment of the last refund without a Decision.
    pub(crate) refunded_at: u64,
    /// The moment since which it counts the units that went back …
    pub(crate) counted_since: u64,
    /// … and the number of these units.
    pub(crate) refunded: u64,
    /// When every earlier charge has ended. From then on there are no traces.
    pub(crate) until: u64,
}

impl Traces {
    /// The traces that still matter at `now`.
    pub(crate) fn at(self, now: u64) -> Self {
        if self.until > now { self } else { Self::default() }
    }

    /// Notes a clear of a key with charges that end at `ends`. A second clear at the same moment gets a later one.
    pub(crate) fn clear(&mut self, now: u64, ends: u64) {
        let until = self.until.max(ends);
        let cleared_at = now.max(self.cleared_at + 1);
        *self = if until > now { Self { cleared_at, until, ..Self::default() } } else { Self::default() };
    }

    /// Notes that units went back, in a key with charges that ended at `ends`. Charges have to know of these units.
    pub(crate) fn refund(&mut self, now: u64, ends: u64, units: u64, by_decision: bool) {
        self.until = self.until.max(ends);
        if !by_decision {
            self.refunded_at = now;
        }
        self.counted_since = if self.refunded == 0 { now } else { self.counted_since };
        self.refunded = (self.refunded + units).min(super::MAX_SAFE_INTEGER);
    }

    /// The units that went back since a charge at `at`. The charge already knew of `known`.
    pub(crate) fn refunded_since(&self, at: u64, known: u64) -> u64 {
        self.refunded.saturating_sub(if self.counted_since <= at { known } else { 0 })
    }
}
