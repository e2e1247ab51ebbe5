//! How often a key is asked for.

/// Demand is measured over that many microseconds.
pub(super) const INTERVAL: u64 = 100_000;
/// Checks within an interval that make a key worth a lease.
const HOT: u64 = 4;

/// The checks and units of this interval and of the one before.
#[derive(Clone, Copy, Default)]
pub(super) struct Demand {
    pub(super) since: u64,
    checks: u64,
    units: u64,
    /// Those of the interval before.
    checks_before: u64,
    units_before: u64,
}

impl Demand {
    #[inline]
    pub(super) fn add(&mut self, now: u64, units: u64) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= INTERVAL {
            let is_next = elapsed < 2 * INTERVAL;
            *self = Self {
                since: now,
                checks_before: if is_next { self.checks } else { 0 },
                units_before: if is_next { self.units } else { 0 },
                ..Self::default()
            };
        }
        self.checks += 1;
        self.units = self.units.saturating_add(units);
    }

    pub(super) const fn is_hot(&self) -> bool {
        self.checks >= HOT || self.checks_before >= HOT
    }

    /// The units that callers ask for in that time, by the latest demand.
    pub(super) fn units_in(&self, life: u64) -> u64 {
        let units = u128::from(self.units.max(self.units_before)) * u128::from(life) / u128::from(INTERVAL);
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}
