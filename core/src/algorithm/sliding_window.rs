//! `sliding-window`: at most n units in any window of length p, counted in granules of p/precision.
//!
//! **Rule.** Time is divided into granules of one length g = p/precision, and units are counted by granule. A granule
//! counts until its last instant has left the window (t - p, t]. So no window of length p ever holds more than n units,
//! and units come back at most g late. **State:** the count of each granule in the window, and their sum. A granule is
//! stored with its last instant, so that a changed precision reads it as it is. **Cost:** O(min(n, precision)).
//!
//! **Example,** 3 per 10 s with a precision of 10, so g = 1 s: units at 0.2 s, 4 s and 9 s are admitted. A check at 9.5
//! s is refused until the granule [0 s, 1 s) has left the window, at 10.999999 s. `sliding-log` would admit it at 10.2
//! s.

use std::collections::VecDeque;

use super::limit::DEFAULT_PRECISION;
#[cfg(feature = "stored")]
use super::limit::MAX_PRECISION;
use super::meaning::lint_nominal;
#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits, items, put_items};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, Tried, View, boxed, left};
use crate::tables::allocation::allocated;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
    /// The length of a granule.
    pub(crate) granule: u64,
}

/// The most granules that [`Rule::compacted`] keeps apart. It counts further ones as leaving together, at the end.
const COMPACTED_GRANULES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The moment of the last change. The newest granule is the one of this moment.
    pub(crate) touched: u64,
    /// Units in the newest granule.
    pub(crate) newest: u64,
    /// Units in all granules, the newest included.
    pub(crate) total: u64,
    /// The granules before the newest, oldest first: their last instant and their units.
    pub(crate) older: VecDeque<(u64, u64)>,
}

impl Rule {
    /// The last instant of the granule that holds a moment.
    #[inline]
    fn last_instant(&self, moment: u64) -> u64 {
        moment - moment % self.granule + self.granule - 1
    }

    /// How many of the older granules have left the window at `now`, and the units that are still in it.
    #[inline]
    fn count_live(&self, state: &State, now: u64) -> (usize, u64) {
        self.count_live_of(state, self.last_instant(state.touched), now)
    }

    /// The same, if the caller knows the last instant of the newest granule. To find it takes a division.
    #[inline(always)]
    fn count_live_of(&self, state: &State, last: u64, now: u64) -> (usize, u64) {
        if last + self.period <= now {
            return (state.older.len(), 0);
        }
        let mut used = state.total;
        for (expired, &(last, units)) in state.older.iter().enumerate() {
            if last + self.period > now {
                return (expired, used);
            }
            used = used.saturating_sub(units);
        }
        (state.older.len(), used)
    }

    /// Removes the units that have left the window and makes the granule of `now` the newest.
    #[inline]
    fn advance_to(&self, state: &mut State, now: u64) {
        let (now, last) = (now.max(state.touched), self.last_instant(state.touched));
        let live = self.count_live_of(state, last, now);
        Self::advance(state, last, live, now);
    }

    /// The same for a `now` not before the last change. The caller knows the last instant of the newest granule and the live units.
    #[inline(always)]
    fn advance(state: &mut State, last: u64, (expired, used): (usize, u64), now: u64) {
        if expired > 0 {
            state.older.drain(..expired);
        }
        state.total = used;
        if used == 0 {
            state.older.clear();
            state.newest = 0;
        } else if now > last {
            if state.newest > 0 {
                state.older.push_back((last, state.newest));
            }
            state.newest = 0;
        }
        state.touched = now;
    }

    /// A smaller state with the same answers before `until`. Granules that stay in the window until then become one.
    pub(crate) fn compacted(&self, mut state: State, until: u64) -> State {
        let leaves = |&&(last, _): &&(u64, u64)| last + self.period <= until;
        let leaving = state.older.iter().take(COMPACTED_GRANULES).take_while(leaves).count();
        state.newest += state.older.drain(leaving..).map(|(_, units)| units).sum::<u64>();
        state.older.shrink_to_fit();
        state
    }

    /// Returns when so many of the units in the window have left it. `expired` granules have left it already, and the last one leaves
    /// at `ends`.
    #[inline]
    fn left_at(&self, state: &State, expired: usize, mut units: u64, (now, ends): (u64, u64)) -> u64 {
        let mut moment = now;
        for &(last, of_granule) in state.older.range(expired..) {
            if units == 0 {
                break;
            }
            units = units.saturating_sub(of_granule);
            moment = last + self.period;
        }
        if units == 0 { moment } else { ends }
    }

    #[inline(always)]
    fn ends_of(&self, state: &State, last: u64) -> u64 {
        if state.newest > 0 { last + self.period } else { state.older.back().map_or(0, |(last, _)| last + self.period) }
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (true, false);

    fn used(&self, state: &State, now: u64) -> u64 {
        self.count_live(state, now.max(state.touched)).1
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        let now = now.max(state.touched);
        self.count_live(state, now).1 + cost <= self.count
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        self.advance_to(state, now);
        let cost = cost.min(MAX_SAFE_INTEGER - state.total);
        state.newest += cost;
        state.total += cost;
    }

    /// Gives back the units of the oldest granules.
    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        self.advance_to(state, now);
        let units = cost.min(state.total);
        let mut left = units;
        while let Some((_, granule)) = state.older.front_mut().filter(|_| left > 0) {
            let taken = left.min(*granule);
            *granule -= taken;
            left -= taken;
            if *granule == 0 {
                state.older.pop_front();
            }
        }
        (state.newest, state.total) = (state.newest.saturating_sub(left), state.total - units);
        if state.total == 0 {
            *state = State::default();
        }
        units
    }

    /// Gives units of a charge back to the granule of that charge.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        let (expired, used) = self.count_live(state, now.max(state.touched));
        state.older.drain(..expired);
        (state.total, state.newest) = (used, state.newest.min(used));
        let last = self.last_instant(charge.at);
        if last + self.period <= now {
            return 0;
        }
        let mut own = 0;
        if self.last_instant(state.touched) == last {
            own = charge.left_of(state.newest, !state.older.is_empty());
            state.newest -= own;
        } else if let Some(index) = state.older.iter().position(|&(granule, _)| granule == last) {
            own = charge.left_of(state.older[index].1, index > 0);
            state.older[index].1 -= own;
            if state.older[index].1 == 0 {
                state.older.remove(index);
            }
        }
        state.total -= own;
        match charge.in_place(own) {
            0 => own,
            oldest => own + self.refund(state, now, oldest),
        }
    }

    /// A granule that ends here needs a place in the list. The deque has one if it held as many granules before.
    #[inline]
    fn try_charge(&self, state: &mut State, now: u64, cost: u64, view: &mut View) -> Tried {
        let (moment, last) = (now.max(state.touched), self.last_instant(state.touched));
        let (expired, used) = self.count_live_of(state, last, moment);
        let charged = used + cost;
        if charged > self.count {
            return Tried::Refused;
        }
        let begins = moment > last;
        let keeps = begins && used > 0 && state.newest > 0;
        if keeps && state.older.len() - expired == state.older.capacity() {
            return Tried::Untried;
        }
        Self::advance(state, last, (expired, used), moment);
        state.newest += cost;
        state.total = charged;
        let ends = self.period + if begins { self.last_instant(moment) } else { last };
        let left_at = |units| self.left_at(state, 0, units, (now, ends));
        let admits_at = (cost <= self.count).then(|| left_at((charged + cost).saturating_sub(self.count)));
        *view = View { left: left(self.count, charged), admits_at, resets_at: ends, more_at: left_at(1), delay: 0 };
        Tried::Admitted { ends }
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        self.ends_of(state, self.last_instant(state.touched))
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let last = self.last_instant(state.touched);
        let (expired, used) = self.count_live_of(state, last, now.max(state.touched));
        let ends = self.ends_of(state, last);
        let left_at = |units| self.left_at(state, expired, units, (now, ends));
        let admits_at = (cost <= self.count).then(|| left_at((used + cost).saturating_sub(self.count)));
        let resets_at = if used == 0 { now } else { ends };
        let more_at = left_at(used.saturating_sub(self.count) + 1);
        View { left: left(self.count, used), admits_at, resets_at, more_at, delay: 0 }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.total == 0
    }

    fn lease_ends(&self, _view: &View, charged_at: u64) -> Option<u64> {
        Some(charged_at - charged_at % self.granule + self.granule)
    }

    #[inline]
    fn heap_bytes(state: &State) -> usize {
        boxed(state) + allocated(state.older.capacity() * size_of::<(u64, u64)>())
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::MovingWindow;
    const WORDS: &'static str =
        "At most {count} in any {any}; a unit comes back {span} after it was used, at most {granule} later.";

    fn of(limit: &Limit) -> Self {
        let (count, period) = (limit.count(), limit.period().micros());
        Self { count, period, granule: period / u64::from(limit.precision()) }
    }

    fn lease_life(limit: &Limit) -> u64 {
        Self::of(limit).granule
    }

    fn steady(limit: &Limit) -> u64 {
        let Self { count, period, granule } = Self::of(limit);
        (period + granule - 1).div_ceil(count)
    }

    fn lint(limit: &Limit, warn: &mut dyn FnMut(String)) {
        let (precision, count, period) = (limit.precision(), limit.count(), limit.period());
        if precision == 1 && count > 1 {
            warn(format!(
                "with a precision of 1, room comes back up to {period} late: raise the precision, the default is {DEFAULT_PRECISION}"
            ));
        }
        if precision > DEFAULT_PRECISION && u64::from(precision) > count {
            warn(format!(
                "a precision of {precision} is more than the {count} units to keep: sliding-log is exact and no larger"
            ));
        }
        lint_nominal(limit, warn);
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const ITEM: u8 = 2;

    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count, Field::Count, Field::Length];

    fn list_bytes(limit: &Limit) -> (usize, usize) {
        let granules = |most: u64| usize::try_from(most).unwrap_or(usize::MAX) * Self::ITEM_BYTES;
        (granules(limit.count().min(u64::from(limit.precision()))), granules(u64::from(MAX_PRECISION) + 2))
    }

    fn can_have(&self, state: &State) -> bool {
        let fit = state.older.front().is_none_or(|(last, _)| fits(*last));
        fit && fits(state.touched) && state.newest <= state.total && fits(state.total)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.count, self.period, self.granule, 0, 0]
    }

    fn write(state: &State, list: &mut Vec<u8>) -> [u64; 4] {
        put_items(list, state.older.iter().map(|(last, units)| [*last, *units]));
        [state.touched, state.newest, state.total, 0]
    }

    fn read([touched, newest, total, _]: [u64; 4], list: &[u8]) -> Option<State> {
        let older = items::<2>(list)?.map(|[last, units]| (last, units)).collect();
        Some(State { touched, newest, total, older })
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitCharge, LimitRule, Rule, State};

    const MILLISECOND: u64 = 1_000;

    #[test]
    fn the_example_of_this_file() {
        let rule = Rule { count: 3, period: 10_000 * MILLISECOND, granule: 1_000 * MILLISECOND };
        let mut state = State::default();
        for now in [200, 4_000, 9_000] {
            assert!(rule.admits(&state, now * MILLISECOND, 1));
            rule.charge(&mut state, now * MILLISECOND, 1);
        }
        assert_eq!(rule.view(&state, 9_500 * MILLISECOND, 1).admits_at, Some(10_999_999));
    }

    #[test]
    fn a_granule_is_kept_as_one_and_not_after_it_was_given_back() {
        let rule = Rule { count: 3, period: 10_000, granule: 1_000 };
        let mut state = State::default();
        rule.charge(&mut state, 200, 1);
        rule.charge(&mut state, 999, 1);
        assert!(state.older.is_empty() && state.newest == 2, "the last instant of a granule belongs to it: {state:?}");
        rule.charge(&mut state, 4_000, 1);
        rule.refund(&mut state, 4_100, 1);
        rule.charge(&mut state, 9_000, 1);
        assert_eq!(state.older, [(999, 1), (4_999, 1)], "the oldest unit went back");
        let charge = LimitCharge { units: 9, at: 4_000, ..LimitCharge::default() };
        assert_eq!(rule.give_back(&mut state, 9_100, &charge), 1);
        rule.charge(&mut state, 9_999, 1);
        assert_eq!((&state.older, state.newest), (&[(999, 1)].into_iter().collect(), 2));
    }
}
