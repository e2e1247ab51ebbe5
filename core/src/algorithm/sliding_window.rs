//! `sliding-window`: the sum over the last period in granules of p/precision.
//!
//! A granule counts until its last instant has left the window, so no window of length p ever holds more than n, and
//! room comes back at most one granule late. Granules are stored by their last instant, so that a changed precision
//! reads them as they are.

use std::collections::VecDeque;

use super::{MAX, View};
use crate::policy::Limit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) period: u64,
    /// The length of a granule.
    pub(crate) granule: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When it was last touched; the newest granule is the one of this moment.
    pub(crate) touched: u64,
    /// Units in the newest granule.
    pub(crate) newest: u64,
    /// Units in all granules, the newest included.
    pub(crate) total: u64,
    /// The granules before, oldest first: their last instant and their units.
    pub(crate) older: VecDeque<(u64, u64)>,
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        let period = limit.period().micros();
        Self { count: limit.count(), period, granule: period / u64::from(limit.precision()) }
    }

    /// The last instant of the granule that holds a moment.
    #[inline]
    fn last_instant(&self, moment: u64) -> u64 {
        moment - moment % self.granule + self.granule - 1
    }

    /// How many of the older granules have left the window at `now`, and the units still in it.
    #[inline]
    fn live(&self, state: &State, now: u64) -> (usize, u64) {
        if self.last_instant(state.touched) + self.period <= now {
            return (state.older.len(), 0);
        }
        let mut used = state.total;
        for (gone, &(last, units)) in state.older.iter().enumerate() {
            if last + self.period > now {
                return (gone, used);
            }
            used -= units;
        }
        (state.older.len(), used)
    }

    #[inline]
    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        let now = now.max(state.touched);
        self.live(state, now).1 + cost <= self.count
    }

    /// Drops what has left the window and makes the granule of `now` the newest.
    #[inline]
    fn roll(&self, state: &mut State, now: u64) {
        let now = now.max(state.touched);
        let (gone, used) = self.live(state, now);
        state.older.drain(..gone);
        state.total = used;
        let last = self.last_instant(state.touched);
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

    #[inline]
    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        self.roll(state, now);
        let cost = cost.min(MAX - state.total);
        state.newest += cost;
        state.total += cost;
    }

    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        self.roll(state, now);
        let mut left = cost.min(state.total);
        state.total -= left;
        let newest = left.min(state.newest);
        state.newest -= newest;
        left -= newest;
        while let Some((_, units)) = state.older.back_mut().filter(|_| left > 0) {
            let taken = left.min(*units);
            *units -= taken;
            left -= taken;
            if *units == 0 {
                state.older.pop_back();
            }
        }
        if state.total == 0 {
            *state = State::default();
        }
    }

    /// The state for looks before `until`, small: what stays in the window until then is put together.
    pub(crate) fn kept(&self, mut state: State, until: u64) -> State {
        let goes = |&&(last, _): &&(u64, u64)| last + self.period <= until;
        let going = state.older.iter().take(super::recall::GRANULES).take_while(goes).count();
        state.newest += state.older.drain(going..).map(|(_, units)| units).sum::<u64>();
        state.older.shrink_to_fit();
        state
    }

    #[inline]
    pub(crate) fn ends(&self, state: &State) -> u64 {
        if state.newest > 0 {
            self.last_instant(state.touched) + self.period
        } else {
            state.older.back().map_or(0, |(last, _)| last + self.period)
        }
    }

    #[inline]
    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let (gone, used) = self.live(state, now.max(state.touched));
        let admits_at = if cost > self.count {
            None
        } else {
            let mut excess = (used + cost).saturating_sub(self.count);
            let mut moment = now;
            for &(last, units) in state.older.range(gone..) {
                if excess == 0 {
                    break;
                }
                excess = excess.saturating_sub(units);
                moment = last + self.period;
            }
            Some(if excess == 0 { moment } else { self.ends(state) })
        };
        let resets_at = if used == 0 { now } else { self.ends(state) };
        View { remaining: self.count.saturating_sub(used), admits_at, resets_at, delay: 0 }
    }
}
