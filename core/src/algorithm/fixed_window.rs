//! `fixed-window`: at most n units in a window of length p that the first admitted check opens.
//!
//! **Rule.** A window that opened at t0 covers [t0, t0 + p). A check of cost c at time t is admitted when `used + c <=
//! n`. `used` counts the units charged in the open window. Without an open window it is 0, and the check opens one at
//! t. **State:** t0 and `used`. **Cost:** O(1) in time and space.
//!
//! **Example,** 3 per 10 s: checks at 0 s, 4 s and 9 s are admitted. One at 9.5 s is refused until 10 s. The first check
//! after that, at 12 s, opens the window [12 s, 22 s). Around the end of a window up to 2n - 1 units pass within less
//! than p: one at 0 s, two at 9.9 s and three at 10 s are all admitted.

#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, Tried, View, left};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When the window opened.
    pub(crate) opened: u64,
    /// Units charged in it. 0 means that no window is open.
    pub(crate) used: u64,
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (false, false);

    #[inline]
    fn used(&self, state: &State, now: u64) -> u64 {
        if now < state.opened + self.period { state.used } else { 0 }
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.used(state, now) + cost <= self.count
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        match self.used(state, now) {
            0 => *state = State { opened: now, used: cost },
            used => state.used = (used + cost).min(MAX_SAFE_INTEGER),
        }
    }

    #[inline(always)]
    fn try_charge(&self, state: &mut State, now: u64, cost: u64, view: &mut View) -> Tried {
        let used = self.used(state, now);
        let charged = used + cost;
        if charged > self.count {
            return Tried::Refused;
        }
        *state = State { opened: if used == 0 { now } else { state.opened }, used: charged };
        let ends = state.opened + self.period;
        let admits_at = (cost <= self.count).then_some(if charged + cost <= self.count { now } else { ends });
        *view = View { left: left(self.count, charged), admits_at, resets_at: ends, ..View::default() };
        Tried::Admitted { ends }
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        let used = self.used(state, now);
        match used.saturating_sub(cost) {
            0 => *state = State::default(),
            used => state.used = used,
        }
        used.min(cost)
    }

    /// Gives units of a charge back, as long as the window of that charge is open.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        if state.opened <= charge.at { self.refund(state, now, charge.units) } else { 0 }
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        if state.used == 0 { 0 } else { state.opened + self.period }
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let used = self.used(state, now);
        let closes = if used == 0 { now } else { state.opened + self.period };
        View {
            left: left(self.count, used),
            admits_at: (cost <= self.count).then_some(if used + cost <= self.count { now } else { closes }),
            resets_at: closes,
            ..View::default()
        }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.used == 0
    }

    fn lease_ends(&self, view: &View, _charged_at: u64) -> Option<u64> {
        Some(view.resets_at)
    }

    /// A window that opens now begins at the same moment as a charge made now.
    fn clear_matters_until(&self, state: &State, now: u64) -> u64 {
        let ends = self.ends(state);
        if ends > now { now + self.period } else { ends }
    }

    fn more_at(&self, view: &View, _used: u64) -> Option<u64> {
        Some(view.resets_at)
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Windows;
    const WORDS: &'static str = "At most {count} in a window of {span} that the first admitted check opens; around the edge of \
                                 two windows up to twice that.";

    fn of(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }

    /// One unit opens an earlier window, and the others of that window come at its very end.
    fn most_in(limit: &Limit, window: u64) -> u64 {
        let (count, period) = (limit.count(), limit.period().micros());
        let times = |windows: u64| count.saturating_mul(windows);
        times(window.div_ceil(period)).max(times((window - 1).div_ceil(period)).saturating_add(count - 1))
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count];

    fn can_have(&self, state: &State) -> bool {
        fits(state.opened) && fits(state.used)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.count, self.period, 0, 0, 0]
    }

    fn write(state: &State, _list: &mut Vec<u8>) -> [u64; 4] {
        [state.opened, state.used, 0, 0]
    }

    fn read([opened, used, ..]: [u64; 4], _list: &[u8]) -> Option<State> {
        Some(State { opened, used })
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRule, Rule, State};

    #[test]
    fn the_example_of_this_file() {
        let (rule, mut state) = (Rule { count: 3, period: 10_000 }, State::default());
        for now in [0, 4_000, 9_000] {
            assert!(rule.admits(&state, now, 1));
            rule.charge(&mut state, now, 1);
        }
        assert!(!rule.admits(&state, 9_500, 1));
        assert_eq!(rule.view(&state, 9_500, 1).admits_at, Some(10_000));
        rule.charge(&mut state, 12_000, 1);
        assert_eq!(rule.ends(&state), 22_000);
    }
}
