//! `sliding-counter`: the two-counter estimate of a sliding window.
//!
//! **Rule.** Units are counted in aligned windows of length p. The units of the last p are estimated as if those of the
//! previous window were spread evenly over it: `floor(previous * (p - elapsed) / p) + current`, where `elapsed` is the
//! time since the current window began. A check is admitted when this estimate and c are at most n. **State:** the two
//! counters and the moment of the last charge. **Cost:** O(1). It is an estimate: after a burst at the end of a window,
//! more than n units may pass within p.
//!
//! **Example,** 10 per 60 s: 10 units in the window [0 s, 60 s), none since. At 75 s the estimate is
//! floor(10 * 45 / 60) = 7, so 3 units are admitted. The estimate is 1 until 114 s, and 0 after that.

use super::{MAX_SAFE_INTEGER, View, left};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When it was last charged; `current` belongs to the window of this moment.
    pub(crate) touched: u64,
    /// Units charged in the window before that.
    pub(crate) previous: u64,
    pub(crate) current: u64,
}

impl Rule {
    /// The counters at `now`.
    #[inline]
    fn state_at(&self, state: &State, now: u64) -> State {
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

    pub(crate) fn used(&self, state: &State, now: u64) -> u64 {
        self.estimate(&self.state_at(state, now))
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.estimate(&self.state_at(state, now)) + cost <= self.count
    }

    #[inline]
    pub(crate) fn charge(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.state_at(state, now);
        state.current = (state.current + cost).min(MAX_SAFE_INTEGER);
    }

    pub(crate) fn refund(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.state_at(state, now);
        let older = cost.saturating_sub(state.current);
        state.current = state.current.saturating_sub(cost);
        state.previous = state.previous.saturating_sub(older);
        if state.current == 0 && state.previous == 0 {
            *state = State::default();
        }
    }

    /// See [`Rule::give_back`](super::Rule::give_back).
    pub(super) fn give_back(&self, state: &mut State, now: u64, taken_at: u64, units: u64) {
        *state = self.state_at(state, now);
        match (state.touched / self.period).checked_sub(taken_at / self.period) {
            Some(0) => state.current = state.current.saturating_sub(units),
            Some(1) => state.previous = state.previous.saturating_sub(units),
            _ => {}
        }
    }

    /// When the estimate of the window before the one that begins at `start`, which counted `counted`, falls to `most`.
    fn falls_to(&self, start: u64, counted: u64, most: u64) -> u64 {
        if counted <= most {
            return start;
        }
        let left = ((u128::from(most) + 1) * u128::from(self.period) - 1) / u128::from(counted);
        // `counted > most` keeps `left` within the period.
        start + self.period - left as u64
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        let start = state.touched - state.touched % self.period;
        if state.current > 0 {
            self.falls_to(start + self.period, state.current, 0)
        } else if state.previous > 0 {
            self.falls_to(start, state.previous, 0)
        } else {
            0
        }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.state_at(state, now);
        let used = self.estimate(&state);
        let start = state.touched - state.touched % self.period;
        let admits_at = if cost > self.count {
            None
        } else if used + cost <= self.count {
            Some(now)
        } else if state.current + cost <= self.count {
            Some(self.falls_to(start, state.previous, self.count - cost - state.current))
        } else {
            Some(self.falls_to(start + self.period, state.current, self.count - cost))
        };
        View { left: left(self.count, used), admits_at, resets_at: self.ends(&state).max(now), delay: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, State};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_example_of_this_file() {
        let (rule, mut state) = (Rule { count: 10, period: 60 * SECOND }, State::default());
        rule.charge(&mut state, 59 * SECOND, 10);
        assert_eq!(rule.view(&state, 75 * SECOND, 1).remaining(), 3);
        assert!(rule.admits(&state, 75 * SECOND, 3) && !rule.admits(&state, 75 * SECOND, 4));
        assert_eq!(rule.view(&state, 114 * SECOND, 1).remaining(), 9);
        assert_eq!(rule.view(&state, 114 * SECOND + 1, 1).remaining(), 10);
    }
}
