//! `sliding-log`: the exact sum of the units admitted in (t - p, t].
//!
//! Entries hold running totals, so that the units in any stretch are one subtraction and every search is a bisection.
//! The totals wrap at 2^53; the units in the window stay below half of that, so differences are always right.

use std::collections::VecDeque;

use super::{MAX, View};
use crate::policy::Limit;

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

/// The most units a window counts.
const MOST: u64 = MAX / 2;

/// The units between two running totals.
#[inline]
fn between(before: u64, after: u64) -> u64 {
    after.wrapping_sub(before) & MAX
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
    pub(crate) fn new(limit: &Limit) -> Self {
        Self { count: limit.count(), period: limit.period().micros() }
    }

    /// How many entries have left the window at `now`, and the running total before those that have not.
    #[inline]
    fn gone(&self, state: &State, now: u64) -> (usize, u64) {
        let now = now.max(state.touched());
        let gone = state.entries.partition_point(|&(at, _)| at + self.period <= now);
        (gone, if gone == 0 { state.base } else { state.entries[gone - 1].1 })
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        between(self.gone(state, now).1, state.total()) + cost <= self.count
    }

    /// Drops the entries that have left the window.
    fn roll(&self, state: &mut State, now: u64) {
        let (gone, base) = self.gone(state, now);
        state.entries.drain(..gone);
        state.base = base;
        if state.entries.is_empty() {
            state.base = 0;
        }
    }

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        let now = now.max(state.touched());
        self.roll(state, now);
        let used = between(state.base, state.total());
        let total = (state.total() + cost.min(MOST - used)) & MAX;
        match state.entries.back_mut() {
            Some(entry) if entry.0 == now => entry.1 = total,
            _ => state.entries.push_back((now, total)),
        }
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        self.roll(state, now);
        let base = state.base;
        let left = between(base, state.total()).saturating_sub(cost);
        while let Some((at, _)) = state.entries.pop_back() {
            let before = between(base, state.total());
            if before < left {
                state.entries.push_back((at, (base + left) & MAX));
                return;
            }
            if before == left && left > 0 {
                return;
            }
        }
        *state = State::default();
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        state.entries.back().map_or(0, |&(at, _)| at + self.period)
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let (_, before) = self.gone(state, now);
        let used = between(before, state.total());
        let admits_at = if cost > self.count {
            None
        } else if used + cost <= self.count {
            Some(now)
        } else {
            let wanted = between(state.base, before) + used + cost - self.count;
            let index = state.entries.partition_point(|&(_, total)| between(state.base, total) < wanted);
            state.entries.get(index).map(|&(at, _)| at + self.period)
        };
        let resets_at = if used == 0 { now } else { self.ends(state) };
        View { remaining: self.count.saturating_sub(used), admits_at, resets_at, delay: 0 }
    }
}
