//! The missing units of a bucket: a whole number, and the exact moment at which exactly that many were missing.

/// The units that are missing, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) units: u128,
    /// The exact moment is `at + part / of` µs.
    pub(super) at: u64,
    pub(super) part: u128,
    of: u128,
}

impl Level {
    /// A level at which `units` are missing at the moment `at`.
    pub(super) const fn new(at: u64, units: u128) -> Self {
        Self { units, at, part: 0, of: 1 }
    }

    /// The units that come back until `moment` at `rate` per `period`, if enough are missing, and the time since the
    /// last of them, in µs / rate, rounded down.
    pub(super) fn regained(&self, moment: u64, rate: u128, period: u128) -> (u128, u128) {
        let elapsed = u128::from(moment.saturating_sub(self.at));
        if self.part == 0 || self.of == rate {
            let parts = (elapsed * rate).saturating_sub(self.part);
            return (parts / period, parts % period);
        }
        // The fraction belongs to an older rate.
        let parts = (elapsed * self.of).saturating_sub(self.part) * rate;
        (parts / (self.of * period), parts % (self.of * period) / self.of)
    }

    /// The same level, expressed by the latest moment up to `moment` at which a whole number of units was missing.
    pub(super) fn at(&self, moment: u64, rate: u128, period: u128) -> Self {
        let (units, rest) = self.regained(moment, rate, period);
        if units >= self.units {
            return Self::new(moment, 0);
        }
        let (micros, part) = (rest.div_ceil(rate), rest.div_ceil(rate) * rate - rest);
        Self { units: self.units - units, at: moment - micros as u64, part, of: rate }
    }
}
