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

#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, View, left};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The moment of the last charge. `current` belongs to its window.
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
        self.weighted(state) + state.current
    }

    /// The units of the previous window that count now, spread evenly over it.
    #[inline]
    fn weighted(&self, state: &State) -> u64 {
        let left = self.period - state.touched % self.period;
        let weighted = u128::from(state.previous) * u128::from(left) / u128::from(self.period);
        // Not above `previous`, so it fits.
        weighted as u64
    }

    /// The counters at `now` when units go back. The units of a previous window that weighs nothing any more are gone.
    fn counted_at(&self, state: &State, now: u64) -> State {
        let state = self.state_at(state, now);
        State { previous: if self.weighted(&state) == 0 { 0 } else { state.previous }, ..state }
    }

    /// When the estimate of a window of `counted` units falls to `most`, if the next window begins at `start`.
    fn falls_to(&self, start: u64, counted: u64, most: u64) -> u64 {
        if counted <= most {
            return start;
        }
        let left = ((u128::from(most) + 1) * u128::from(self.period) - 1) / u128::from(counted);
        // `counted > most` keeps `left` within the period.
        start + self.period - left as u64
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (true, false);

    fn used(&self, state: &State, now: u64) -> u64 {
        self.estimate(&self.state_at(state, now))
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.estimate(&self.state_at(state, now)) + cost <= self.count
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.state_at(state, now);
        state.current = (state.current + cost).min(MAX_SAFE_INTEGER);
    }

    /// Gives back the units of the previous window first.
    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        *state = self.counted_at(state, now);
        let older = cost.min(state.previous);
        let newer = (cost - older).min(state.current);
        (state.previous, state.current) = (state.previous - older, state.current - newer);
        if state.current == 0 && state.previous == 0 {
            *state = State::default();
        }
        older + newer
    }

    /// Gives units of a charge back to the window of that charge.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        *state = self.counted_at(state, now);
        let (counted, older) = match (state.touched / self.period).checked_sub(charge.at / self.period) {
            Some(0) => (&mut state.current, state.previous > 0),
            Some(1) => (&mut state.previous, false),
            _ => return 0,
        };
        let own = charge.left_of(*counted, older);
        *counted -= own;
        match charge.in_place(own) {
            0 => own,
            oldest => own + self.refund(state, now, oldest),
        }
    }

    /// The end of the last window that weighs the units. A fraction of a unit may count beside others, never alone.
    fn charges_end(&self, state: &State) -> u64 {
        let start = state.touched - state.touched % self.period;
        match (state.previous, state.current) {
            (0, 0) => 0,
            (_, 0) => start + self.period,
            _ => start + 2 * self.period,
        }
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
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
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let state = self.state_at(state, now);
        let used = self.estimate(&state);
        let start = state.touched - state.touched % self.period;
        // Returns when the estimate, which is higher now, falls to `most`.
        let falls_to = |most: u64| match most.checked_sub(state.current) {
            Some(most) => self.falls_to(start, state.previous, most),
            None => self.falls_to(start + self.period, state.current, most),
        };
        let admits_at = if cost > self.count {
            None
        } else if used + cost <= self.count {
            Some(now)
        } else {
            Some(falls_to(self.count - cost))
        };
        let resets_at = self.ends(&state).max(now);
        let more_at = used.min(self.count).checked_sub(1).map_or(now, falls_to);
        View { left: left(self.count, used), admits_at, resets_at, more_at, delay: 0 }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.previous == 0 && state.current == 0
    }

    fn lease_ends(&self, _view: &View, charged_at: u64) -> Option<u64> {
        Some(charged_at - charged_at % self.period + self.period)
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Windows;
    const WORDS: &'static str = "About {count} in any {any}: an estimate from the counts of this window and the one before, which \
                                 assumes that calls came evenly.";

    fn of(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }

    /// At exactly its rate the estimate is full when a window begins.
    fn steady(limit: &Limit) -> u64 {
        limit.period().micros() / limit.count() + 1
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count, Field::Count];

    fn can_have(&self, state: &State) -> bool {
        fits(state.touched) && fits(state.previous) && fits(state.current)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.count, self.period, 0, 0, 0]
    }

    fn write(state: &State, _list: &mut Vec<u8>) -> [u64; 4] {
        [state.touched, state.previous, state.current, 0]
    }

    fn read([touched, previous, current, _]: [u64; 4], _list: &[u8]) -> Option<State> {
        Some(State { touched, previous, current })
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRule, Rule, State};

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
