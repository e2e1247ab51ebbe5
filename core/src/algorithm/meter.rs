//! What the three buckets share: units that drain away at an exact, steady rate.
//!
//! A meter holds `units` whole units as of a moment and drains one every p/n. The moment may lie up to one unit's
//! time in the past: the part of a unit that has drained since is kept there, as time, so that nothing is rounded. It
//! has a fraction when p/n is no whole number of microseconds. The count is no part of the state, so a changed count
//! leaves what was used as it was and drains it at the new rate.

use super::{Added, MAX, View};
use crate::policy::Limit;

/// The longest a debt may take to drain, 2^52 µs (142 years): keeps every moment below 2^53.
const LONGEST_DEBT: u128 = 1 << 52;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meter {
    pub(crate) capacity: u64,
    /// One unit takes `rise / run` microseconds to drain, in lowest terms.
    pub(crate) rise: u64,
    pub(crate) run: u64,
    /// The most units it can owe.
    pub(crate) ceiling: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The moment, in whole microseconds …
    pub(crate) since: u64,
    /// … the units that were in the meter then …
    pub(crate) units: u64,
    /// … and the moment's fraction, in parts of `run`.
    pub(crate) part: u64,
}

impl Meter {
    pub(crate) fn new(limit: &Limit) -> Self {
        Self::of(limit.count().max(1), limit.period().micros(), limit.capacity())
    }

    fn of(count: u64, period: u64, capacity: u64) -> Self {
        let common = gcd(count, period);
        let (rise, run) = (period / common, count / common);
        let ceiling = (LONGEST_DEBT * u128::from(run) / u128::from(rise)).min(u128::from(MAX));
        Self { capacity, rise, run, ceiling: ceiling as u64 }
    }

    /// Reads what a meter of another count left. What was over then stays over; of the rest the units stay what they
    /// are, and a fraction of a microsecond that has no place in the new numbers is waited for.
    pub(crate) fn refit(&self, state: &mut State, (period, count): (u64, u64), now: u64) {
        let old = Self::of(count, period, 0);
        let ends = old.ends(state);
        if ends <= now {
            *state = State { since: state.since.max(ends), units: 0, part: 0 };
        } else if state.part > 0 && old.run != self.run {
            (state.since, state.part) = (state.since + 1, 0);
        }
        state.units = state.units.min(self.ceiling);
    }

    /// Whole units drained between the state's moment and `now`, and the parts (of `run`) left over.
    #[inline]
    fn drained(&self, state: &State, now: u64) -> (u128, u128) {
        let Some(elapsed) = now.checked_sub(state.since) else { return (0, 0) };
        // Nearly always everything fits into 64 bits, where a division costs a tenth.
        if let Some(parts) = elapsed.checked_mul(self.run) {
            let parts = parts.saturating_sub(state.part);
            if parts < self.rise {
                return (0, u128::from(parts));
            }
            return (u128::from(parts / self.rise), u128::from(parts % self.rise));
        }
        let parts = (u128::from(elapsed) * u128::from(self.run)).saturating_sub(u128::from(state.part));
        (parts / u128::from(self.rise), parts % u128::from(self.rise))
    }

    /// The meter as it stands at `now`.
    #[inline]
    pub(crate) fn at(&self, state: &State, now: u64) -> State {
        if state.units == 0 {
            return State { since: now.max(state.since), units: 0, part: 0 };
        }
        let (units, rest) = self.drained(state, now);
        if units >= u128::from(state.units) {
            return State { since: now, units: 0, part: 0 };
        }
        if units == 0 {
            return *state;
        }
        // Fits: fewer than `state.units`, and less than `rise`.
        let (units, rest) = (units as u64, rest as u64);
        let (whole, parts) = (rest / self.run, rest % self.run);
        let (since, part) = if parts == 0 { (now - whole, 0) } else { (now - whole - 1, self.run - parts) };
        State { since, units: state.units - units, part }
    }

    /// The meter that is empty at `ends`, as it stood at `at`.
    pub(crate) fn ending(&self, at: u64, ends: u64) -> State {
        let (left, rise, run) = (u128::from(ends.saturating_sub(at)), u128::from(self.rise), u128::from(self.run));
        // The fewest that take so long, to the microsecond.
        let units = if left == 0 { 0 } else { ((left - 1) * run / rise + 1).min(u128::from(self.ceiling)) };
        let takes = units * rise / run;
        // 0 would be a bucket never seen.
        State { since: ends.saturating_sub(takes as u64).max(1), units: units as u64, part: 0 }
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.at(state, now).units + cost <= self.capacity
    }

    /// Asks, charges and tells in one step: what `admits`, `add`, `ends` and `view` would, one after the other. `None` is
    /// a refusal, and changes nothing.
    #[inline(always)]
    pub(crate) fn try_add(&self, state: &mut State, now: u64, cost: u64) -> Option<Added> {
        let mut current = self.at(state, now);
        current.units += cost;
        if current.units > self.capacity {
            return None;
        }
        *state = current;
        let ends = self.ends(&current);
        Some(Added { ends, view: self.shown(&current, ends, now, cost) })
    }

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.at(state, now);
        state.units = (state.units + cost).min(self.ceiling);
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.at(state, now);
        state.units = state.units.saturating_sub(cost);
    }

    /// The first whole microsecond at which `units` more have drained since the state's moment.
    #[inline]
    pub(crate) fn moment(&self, state: &State, units: u64) -> u64 {
        if let Some(parts) = units.checked_mul(self.rise).and_then(|parts| parts.checked_add(state.part)) {
            return state.since + if self.run == 1 { parts } else { parts.div_ceil(self.run) };
        }
        let parts = u128::from(units) * u128::from(self.rise) + u128::from(state.part);
        state.since + parts.div_ceil(u128::from(self.run)) as u64
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        if state.units == 0 { 0 } else { self.moment(state, state.units) }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.at(state, now);
        self.shown(&state, self.ends(&state), now, cost)
    }

    /// The view of a state that stands at `now`.
    #[inline(always)]
    fn shown(&self, state: &State, ends: u64, now: u64, cost: u64) -> View {
        let wanted = state.units + cost;
        let admits_at = if cost > self.capacity {
            None
        } else if wanted <= self.capacity {
            Some(now)
        } else {
            Some(self.moment(state, wanted - self.capacity))
        };
        View { remaining: self.capacity.saturating_sub(state.units), admits_at, resets_at: ends.max(now), delay: 0 }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
