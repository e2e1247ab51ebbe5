//! `sliding-log`: at most n units in any window of length p, exactly.
//!
//! **Rule.** The units that were admitted in (t - p, t] and c are at most n. **State:** a log with an entry for each
//! admitted check: its moment and the running total after it. With running totals the units in any stretch of time are
//! one subtraction, and every search is a bisection. Totals wrap at 2^53. A window counts less than half of that, so a
//! difference of two totals is unambiguous. **Cost:** O(log n) in time, O(n) in space.
//!
//! **Example,** 3 per 10 s: units at 0 s, 4 s and 9 s are admitted. A check of cost 1 at 9.5 s is refused until 10 s, when
//! the unit of 0 s leaves the window. One of cost 2 is refused until 14 s.

use std::collections::VecDeque;

#[cfg(feature = "stored")]
use super::stored::{Field, MOMENT_WIDTH, StoredRule, fits, items, put_items};
use super::{AlgorithmKind, LeaseTerms, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, View, boxed, left};
use crate::tables::allocation::allocated;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The running total before the first entry.
    pub(crate) base: u64,
    /// When units were admitted, oldest first, and the running total after each.
    pub(crate) entries: VecDeque<(u64, u64)>,
}

/// The most units that a window can count.
pub(super) const MAX_UNITS: u64 = MAX_SAFE_INTEGER / 2;

/// The number of log entries that a server keeps in a separate field.
#[cfg(feature = "stored")]
pub(crate) const ENTRIES_OF_A_CHUNK: u64 = 36;

/// The units between two running totals, which wrap.
#[inline]
fn between(before: u64, after: u64) -> u64 {
    after.wrapping_sub(before) & MAX_SAFE_INTEGER
}

impl State {
    fn total(&self) -> u64 {
        self.entries.back().map_or(self.base, |&(_, total)| total)
    }

    fn touched(&self) -> u64 {
        self.entries.back().map_or(0, |&(at, _)| at)
    }
}

impl Rule {
    /// How many entries have left the window at `now`, and the running total before those that have not.
    #[inline]
    fn expired(&self, state: &State, now: u64) -> (usize, u64) {
        let expired = state.entries.partition_point(|&(at, _)| at + self.period <= now);
        (expired, if expired == 0 { state.base } else { state.entries[expired - 1].1 })
    }

    /// Removes the entries that have left the window.
    fn drop_expired(&self, state: &mut State, now: u64) {
        let (expired, base) = self.expired(state, now);
        state.entries.drain(..expired);
        state.base = base;
        if state.entries.is_empty() {
            state.base = 0;
        }
    }

    /// Charges units that count like those of a later moment. Entries are in order, so the next one is not earlier.
    #[inline]
    pub(super) fn charge_as_of(&self, state: &mut State, now: u64, moment: u64, cost: u64) {
        let moment = moment.max(state.touched());
        self.drop_expired(state, now);
        let used = between(state.base, state.total());
        let total = (state.total() + cost.min(MAX_UNITS - used)) & MAX_SAFE_INTEGER;
        match state.entries.back_mut() {
            Some(entry) if entry.0 == moment => entry.1 = total,
            _ => state.entries.push_back((moment, total)),
        }
    }

    /// Builds a log from a summary: the units used, the moment `release` at which a check of `cost` is admitted, and
    /// the moment when the newest units leave. Units never leave it earlier than they leave the log itself.
    #[cfg(feature = "stored")]
    pub(crate) fn state_of_summary(&self, used: u64, cost: u64, release: u64, ends: u64) -> State {
        let mut state = State::default();
        // The units that have left the log at `release`. Only then does the check fit.
        let leaving = if cost <= self.count { (used + cost).saturating_sub(self.count) } else { 0 };
        if leaving > 0 && leaving < used && (self.period..ends).contains(&release) {
            state.entries.push_back((release - self.period, leaving));
        }
        if used > 0 {
            state.entries.push_back((ends.saturating_sub(self.period), used));
        }
        state
    }

    /// When so many of the units after the running total `before` have left the window.
    #[inline]
    fn left_at(&self, state: &State, before: u64, units: u64) -> Option<u64> {
        let wanted = between(state.base, before) + units;
        let index = state.entries.partition_point(|&(_, total)| between(state.base, total) < wanted);
        state.entries.get(index).map(|&(at, _)| at + self.period)
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (true, false);

    fn used(&self, state: &State, now: u64) -> u64 {
        between(self.expired(state, now).1, state.total())
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        between(self.expired(state, now).1, state.total()) + cost <= self.count
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        self.charge_as_of(state, now, now, cost);
    }

    /// Gives units of a charge back to the entry of that charge.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        self.drop_expired(state, now);
        let moment = charge.at + charge.life;
        if moment + self.period <= now {
            return 0;
        }
        let first = state.entries.partition_point(|&(at, _)| at < moment);
        let before = if first == 0 { state.base } else { state.entries[first - 1].1 };
        let own = match state.entries.get(first) {
            Some(&(at, total)) if at == moment => charge.left_of(between(before, total), before != state.base),
            _ => 0,
        };
        if own > 0 {
            for (_, total) in state.entries.range_mut(first..) {
                *total = total.wrapping_sub(own) & MAX_SAFE_INTEGER;
            }
            if state.entries[first].1 == before {
                state.entries.remove(first);
            }
        }
        match charge.in_place(own) {
            0 => own,
            oldest => own + self.refund(state, now, oldest),
        }
    }

    /// Gives back the units of the oldest entries.
    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        self.drop_expired(state, now);
        let units = cost.min(between(state.base, state.total()));
        let base = (state.base + units) & MAX_SAFE_INTEGER;
        let emptied = state.entries.partition_point(|&(_, total)| between(state.base, total) <= units);
        state.entries.drain(..emptied);
        state.base = if state.entries.is_empty() { 0 } else { base };
        units
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        state.entries.back().map_or(0, |&(at, _)| at + self.period)
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let (_, before) = self.expired(state, now);
        let used = between(before, state.total());
        let admits_at = if cost > self.count {
            None
        } else if used + cost <= self.count {
            Some(now)
        } else {
            self.left_at(state, before, used + cost - self.count)
        };
        let resets_at = if used == 0 { now } else { self.ends(state) };
        let oldest = used.saturating_sub(self.count) + 1;
        let more_at = self.left_at(state, before, oldest).unwrap_or(resets_at);
        View { left: left(self.count, used), admits_at, resets_at, more_at, delay: 0 }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.entries.is_empty()
    }

    fn lease_ends(&self, _view: &View, _charged_at: u64) -> Option<u64> {
        None
    }

    fn charge_lease(&self, state: &mut State, now: u64, LeaseTerms { units, life }: LeaseTerms) {
        self.charge_as_of(state, now, now + life, units);
    }

    #[inline]
    fn heap_bytes(state: &State) -> usize {
        boxed(state) + allocated(state.entries.capacity() * size_of::<(u64, u64)>())
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::MovingWindow;
    const WORDS: &'static str = "At most {count} in any {any}; a unit comes back exactly {span} after it was used.";

    fn of(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const ITEM: u8 = 2;

    const FIELDS: &'static [Field] = &[Field::Moment, Field::Moment, Field::Moment, Field::Length];

    /// The value itself has at most two chunks of the log. The reply has a summary beside them.
    fn list_bytes(limit: &Limit) -> (usize, usize) {
        const MOST: u64 = 2 * ENTRIES_OF_A_CHUNK;
        const ENTRY: usize = 2 * MOMENT_WIDTH as usize;
        (limit.count().min(MOST) as usize * ENTRY, MOST as usize * ENTRY + 64)
    }

    fn can_have(&self, state: &State) -> bool {
        let can_be = |(at, total): &(u64, u64)| fits(*at) && fits(*total) && between(state.base, *total) <= MAX_UNITS;
        fits(state.base) && state.entries.iter().all(can_be)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.count, self.period, 0, 0, 0]
    }

    /// Writes no chunks.
    fn write(state: &State, list: &mut Vec<u8>) -> [u64; 4] {
        put_items(list, state.entries.iter().map(|(at, total)| [*at, *total]));
        [0, 0, state.base, 0]
    }

    /// The chunks of a log stay on the server.
    fn read([head, tail, base, _]: [u64; 4], list: &[u8]) -> Option<State> {
        let entries = items::<2>(list)?.map(|[at, total]| (at, total)).collect();
        (head == tail).then_some(State { base, entries })
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
        assert_eq!(rule.view(&state, 9_500, 1).admits_at, Some(10_000));
        assert_eq!(rule.view(&state, 9_500, 2).admits_at, Some(14_000));
    }

    #[cfg(feature = "stored")]
    #[test]
    fn a_log_of_which_only_a_summary_is_known() {
        let rule = Rule { count: 10, period: 10_000 };
        // Four units at 1 s and six at 5 s: three fit at 11 s, and the last leave at 15 s.
        let log = |entries: &[(u64, u64)]| State { base: 0, entries: entries.iter().copied().collect() };
        assert_eq!(rule.state_of_summary(10, 3, 11_000, 15_000), log(&[(1_000, 3), (5_000, 10)]));
        assert_eq!(rule.state_of_summary(10, 1, 10_000, 15_000), log(&[(0, 1), (5_000, 10)]), "the earliest moment");
        let all_together = log(&[(5_000, 10)]);
        for (cost, release, why) in [
            (11, 11_000, "such a check never fits"),
            (10, 14_999, "it waits for the last unit"),
            (1, 9_999, "units would have come before any time"),
            (1, 15_000, "units would leave with the last"),
        ] {
            assert_eq!(rule.state_of_summary(10, cost, release, 15_000), all_together, "{why}");
        }
        assert_eq!(rule.state_of_summary(4, 6, 11_000, 15_000), log(&[(5_000, 4)]), "it fits now");
        assert_eq!(rule.state_of_summary(0, 3, 11_000, 15_000), State::default());
    }
}
