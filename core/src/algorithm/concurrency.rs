//! `concurrency`: at most n units in progress; a hold that is not renewed within its ttl is given back.
//!
//! Holds are kept in the order they expire. A check that is no hold takes one that nobody renews.

use super::View;
use crate::policy::Limit;

/// Names a hold; 0 is a hold that nobody renews.
pub(crate) type HoldId = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) ttl: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) expires: u64,
    pub(crate) id: HoldId,
    pub(crate) units: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When it was last touched.
    pub(crate) touched: u64,
    /// Units of all holds that are stored, expired ones included.
    pub(crate) total: u64,
    /// The holds, the first to expire first.
    pub(crate) holds: Vec<Hold>,
}

impl Rule {
    pub(crate) fn new(limit: &Limit) -> Self {
        Self { count: limit.count(), ttl: limit.period().micros() }
    }

    /// How many holds have expired at `now`, and the units of the others.
    fn live(&self, state: &State, now: u64) -> (usize, u64) {
        let now = now.max(state.touched);
        let gone = state.holds.partition_point(|hold| hold.expires <= now);
        let expired: u64 = state.holds[..gone].iter().map(|hold| hold.units).sum();
        (gone, state.total - expired)
    }

    pub(crate) fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.live(state, now).1 + cost <= self.count
    }

    fn roll(&self, state: &mut State, now: u64) {
        let (gone, used) = self.live(state, now);
        state.holds.drain(..gone);
        state.total = used;
        state.touched = now.max(state.touched);
    }

    fn insert(state: &mut State, hold: Hold) {
        let index = state.holds.partition_point(|other| other.expires <= hold.expires);
        state.holds.insert(index, hold);
        state.total += hold.units;
    }

    /// Takes a live hold out; without one nothing changes.
    fn remove(&self, state: &mut State, now: u64, id: HoldId) -> Option<Hold> {
        let (gone, _) = self.live(state, now);
        let index = gone + state.holds[gone..].iter().position(|hold| hold.id == id)?;
        let hold = state.holds.remove(index);
        state.total -= hold.units;
        self.roll(state, now);
        Some(hold)
    }

    pub(crate) fn open(&self, state: &mut State, now: u64, cost: u64, id: HoldId) {
        self.roll(state, now);
        let units = cost.min(super::MAX - state.total);
        Self::insert(state, Hold { expires: state.touched + self.ttl, id, units });
    }

    pub(crate) fn add(&self, state: &mut State, now: u64, cost: u64) {
        self.open(state, now, cost, 0);
    }

    /// Makes a hold last another ttl; says whether it was still there.
    pub(crate) fn renew(&self, state: &mut State, now: u64, id: HoldId) -> bool {
        let Some(hold) = self.remove(state, now, id) else { return false };
        Self::insert(state, Hold { expires: state.touched + self.ttl, ..hold });
        true
    }

    /// Gives a hold back; says whether it was still there.
    pub(crate) fn close(&self, state: &mut State, now: u64, id: HoldId) -> bool {
        self.remove(state, now, id).is_some()
    }

    /// Gives back units of holds that nobody renews, the last to expire first.
    pub(crate) fn take(&self, state: &mut State, now: u64, cost: u64) {
        self.roll(state, now);
        let mut left = cost;
        for hold in state.holds.iter_mut().rev().filter(|hold| hold.id == 0) {
            let taken = left.min(hold.units);
            hold.units -= taken;
            state.total -= taken;
            left -= taken;
        }
        state.holds.retain(|hold| hold.units > 0);
    }

    pub(crate) fn ends(&self, state: &State) -> u64 {
        state.holds.last().map_or(0, |hold| hold.expires)
    }

    pub(crate) fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let (gone, used) = self.live(state, now);
        let admits_at = if cost > self.count {
            None
        } else {
            let mut excess = (used + cost).saturating_sub(self.count);
            let mut moment = now;
            for hold in &state.holds[gone..] {
                if excess == 0 {
                    break;
                }
                excess = excess.saturating_sub(hold.units);
                moment = hold.expires;
            }
            Some(moment)
        };
        let resets_at = if used == 0 { now } else { self.ends(state) };
        View { remaining: self.count.saturating_sub(used), admits_at, resets_at, delay: 0 }
    }
}
