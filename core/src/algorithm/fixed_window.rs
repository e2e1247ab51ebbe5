//! `fixed-window`: at most n units in the window that the first admitted check opened.

use super::{MAX, View};
use crate::policy::Limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When the window opened.
    pub(crate) opened: u64,
    /// Units charged in it; none means that no window is open.
    pub(crate) used: u64,
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }

    #[inline]
    fn used(&self, state: &State, now: u64) -> u64 {
        if now < state.opened + self.period { state.used } else { 0 }
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.used(state, now) + cost <= self.count
    }

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        match self.used(state, now) {
            0 => *state = State { opened: now, used: cost },
            used => state.used = (used + cost).min(MAX),
        }
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        match self.used(state, now).saturating_sub(cost) {
            0 => *state = State::default(),
            used => state.used = used,
        }
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        if state.used == 0 { 0 } else { state.opened + self.period }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let used = self.used(state, now);
        let closes = if used == 0 { now } else { state.opened + self.period };
        View {
            remaining: self.count.saturating_sub(used),
            admits_at: (cost <= self.count).then_some(if used + cost <= self.count { now } else { closes }),
            resets_at: closes,
            delay: 0,
        }
    }
}
