//! `sliding-counter`: two counters over aligned windows and the usual estimate between them.

use super::{MAX, View};
use crate::policy::Limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When it was last charged; `current` belongs to the window of this moment.
    pub(crate) touched: u64,
    pub(crate) previous: u64,
    pub(crate) current: u64,
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }

    /// The counters as they stand at `now`.
    #[inline]
    fn at(&self, state: &State, now: u64) -> State {
        let touched = now.max(state.touched);
        match touched / self.period - state.touched / self.period {
            0 => State { touched, ..*state },
            1 => State { touched, previous: state.current, current: 0 },
            _ => State { touched, previous: 0, current: 0 },
        }
    }

    #[inline]
    fn estimate(&self, state: &State) -> u64 {
        let left = self.period - state.touched % self.period;
        let weighted = u128::from(state.previous) * u128::from(left) / u128::from(self.period);
        // Not above `previous`, so it fits.
        weighted as u64 + state.current
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.estimate(&self.at(state, now)) + cost <= self.count
    }

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.at(state, now);
        state.current = (state.current + cost).min(MAX);
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.at(state, now);
        let older = cost.saturating_sub(state.current);
        state.current = state.current.saturating_sub(cost);
        state.previous = state.previous.saturating_sub(older);
        if state.current == 0 && state.previous == 0 {
            *state = State::default();
        }
    }

    /// When what was counted in the window before the one that begins at `start` weighs at most `most` units.
    fn fades(&self, start: u64, counted: u64, most: u64) -> u64 {
        if counted <= most {
            return start;
        }
        let left = ((u128::from(most) + 1) * u128::from(self.period) - 1) / u128::from(counted);
        // `counted > most` keeps `left` within the period.
        start + self.period - left as u64
    }

    /// The most that the window before may have counted, when all of what weighs `used` at `at` was counted there; that is
    /// so when it is over by the end of this window.
    pub(crate) fn faded(&self, used: u64, at: u64, ends: u64) -> Option<u64> {
        let left = self.period - at % self.period;
        let rest = (at + left).checked_sub(ends)?;
        let weighs = (u128::from(used) + 1) * u128::from(self.period);
        let by_weight = u64::try_from(weighs.div_ceil(u128::from(left)) - 1).ok()?;
        Some((self.period - 1).checked_div(rest).map_or(by_weight, |by_end| by_end.clamp(used, by_weight)))
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        let start = state.touched - state.touched % self.period;
        if state.current > 0 {
            self.fades(start + self.period, state.current, 0)
        } else if state.previous > 0 {
            self.fades(start, state.previous, 0)
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.at(state, now);
        let used = self.estimate(&state);
        let start = state.touched - state.touched % self.period;
        let admits_at = if cost > self.count {
            None
        } else if used + cost <= self.count {
            Some(now)
        } else if state.current + cost <= self.count {
            Some(self.fades(start, state.previous, self.count - cost - state.current))
        } else {
            Some(self.fades(start + self.period, state.current, self.count - cost))
        };
        View { remaining: self.count.saturating_sub(used), admits_at, resets_at: self.ends(&state).max(now), delay: 0 }
    }
}
