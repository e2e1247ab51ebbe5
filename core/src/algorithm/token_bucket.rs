//! `token-bucket`: `burst` tokens, refilled continuously at n/p; starts full, or with `initial` tokens.
//!
//! A meter counts the tokens that are missing. With `initial`, a full bucket differs from one never seen: the
//! key is remembered for as long as it takes to fill once nothing else is to be remembered, and the first call stores
//! the moment the bucket began, also when that call is denied (the tokens it waits for would never come otherwise).

use super::View;
use super::meter::{Meter, State};
use crate::policy::Limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    meter: Meter,
    pub(crate) capacity: u64,
    /// Tokens missing at the start, when that is not none.
    missing: u64,
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        let meter = Meter::new(limit);
        let capacity = meter.capacity;
        let missing = limit.initial().map_or(0, |initial| capacity.saturating_sub(initial));
        Self { meter, capacity, missing }
    }

    pub(crate) const fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) const fn missing(&self) -> u64 {
        self.missing
    }

    /// Whether the bucket was never seen.
    #[inline]
    fn unknown(&self, state: &State) -> bool {
        self.missing > 0 && state.since == 0
    }

    /// How long the bucket is remembered once nothing else is to be: as long as it takes to fill, at least 1 µs. 0 for
    /// a bucket that starts full, which need not be remembered.
    pub(crate) fn grace(&self) -> u64 {
        if self.missing == 0 { 0 } else { self.meter.moment(&State::default(), self.capacity).max(1) }
    }

    #[inline]
    fn known(&self, state: &State, now: u64) -> State {
        if self.unknown(state) { State { since: now, units: self.missing, part: 0 } } else { *state }
    }

    #[inline]
    pub(crate) fn birth(&self, state: &mut State, now: u64) -> bool {
        let unknown = self.unknown(state);
        if unknown {
            *state = self.known(state, now);
        }
        unknown
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.meter.admits(&self.known(state, now), now, cost)
    }

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.known(state, now);
        self.meter.add(state, now, cost);
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        // Nothing was charged to a bucket never seen: giving back must not fill it.
        if !self.unknown(state) {
            self.meter.take(state, now, cost);
        }
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        match self.missing {
            0 => self.meter.ends(state),
            _ if state.since == 0 => 0,
            _ => self.meter.moment(state, state.units),
        }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        self.meter.view(&self.known(state, now), now, cost)
    }
}
