//! `concurrency`: at most n units in progress at the same time.
//!
//! **Rule.** An admitted check takes a hold of c units. Closing the hold gives them back, and renewing it makes it last
//! another ttl. A hold that is not renewed within its ttl expires. A check is admitted when the units of all live holds
//! and c are at most n. A plain check takes a hold that has no id, which cannot be renewed: it always expires.
//! **State:** the holds in the order of their expiry, and the sum of their units. **Cost:** O(n) in space, and in time
//! for operations that look for a hold.
//!
//! **Example,** 2 with a ttl of 30 s: holds A at 0 s and B at 10 s are admitted, a third is refused until A expires at
//! 30 s. When B is renewed at 20 s, it expires at 50 s instead of 40 s. When A is closed at 25 s, a third is admitted.

#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule, fits, items, put_items};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, MAX_SAFE_INTEGER, Meaning, View, boxed, left};
use crate::tables::allocation::allocated;

/// The range of the number of holds that a reply may have, whatever the count.
#[cfg(feature = "stored")]
const MIN_HOLDS: u64 = 100_000;
#[cfg(feature = "stored")]
const MAX_HOLDS: u64 = 10_000_000;

/// Names a hold. 0 stands for a hold without an id, which no one can renew or close.
pub(crate) type HoldId = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) count: u64,
    pub(crate) ttl: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredHold {
    pub(crate) expires: u64,
    pub(crate) id: HoldId,
    pub(crate) units: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The moment of the last change.
    pub(crate) touched: u64,
    /// Units of all stored holds, expired ones included.
    pub(crate) total: u64,
    /// The holds, the first to expire first.
    pub(crate) holds: Vec<StoredHold>,
}

impl Rule {
    /// The number of holds that have expired at `now`, and the units of the others.
    fn count_live(&self, state: &State, now: u64) -> (usize, u64) {
        let now = now.max(state.touched);
        let expired_holds = state.holds.partition_point(|hold| hold.expires <= now);
        let used = state.holds[..expired_holds].iter().fold(state.total, |used, hold| used.saturating_sub(hold.units));
        (expired_holds, used)
    }

    /// Removes the expired holds.
    fn drop_expired(&self, state: &mut State, now: u64) {
        let (expired_holds, used) = self.count_live(state, now);
        state.holds.drain(..expired_holds);
        state.total = used;
        state.touched = now.max(state.touched);
    }

    fn insert(state: &mut State, hold: StoredHold) {
        let index = state.holds.partition_point(|other| other.expires <= hold.expires);
        state.holds.insert(index, hold);
        state.total += hold.units;
    }

    /// Removes a live hold. If there is none, nothing changes.
    fn remove(&self, state: &mut State, now: u64, id: HoldId) -> Option<StoredHold> {
        let (expired_holds, _) = self.count_live(state, now);
        let index = expired_holds + state.holds[expired_holds..].iter().position(|hold| hold.id == id)?;
        let hold = state.holds.remove(index);
        state.total = state.total.saturating_sub(hold.units);
        self.drop_expired(state, now);
        Some(hold)
    }

    fn refund_of(state: &mut State, cost: u64, is_of: impl Fn(&StoredHold) -> bool) -> u64 {
        let mut left = cost;
        for hold in state.holds.iter_mut().filter(|hold| hold.id == 0 && is_of(hold)) {
            let taken = left.min(hold.units);
            hold.units -= taken;
            state.total = state.total.saturating_sub(taken);
            left -= taken;
        }
        state.holds.retain(|hold| hold.units > 0);
        cost - left
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (false, false);

    fn used(&self, state: &State, now: u64) -> u64 {
        self.count_live(state, now).1
    }

    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.count_live(state, now).1 + cost <= self.count
    }

    /// Takes a hold of `cost` units.
    fn open(&self, state: &mut State, now: u64, cost: u64, id: HoldId) {
        self.drop_expired(state, now);
        let units = cost.min(MAX_SAFE_INTEGER - state.total);
        Self::insert(state, StoredHold { expires: state.touched + self.ttl, id, units });
    }

    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        self.open(state, now, cost, 0);
    }

    /// Makes a hold last another ttl. False if it has expired or was closed.
    fn renew(&self, state: &mut State, now: u64, id: HoldId) -> bool {
        let Some(hold) = self.remove(state, now, id) else { return false };
        Self::insert(state, StoredHold { expires: state.touched + self.ttl, ..hold });
        true
    }

    /// Gives a hold back. False if it has expired or was closed.
    fn close(&self, state: &mut State, now: u64, id: HoldId) -> bool {
        self.remove(state, now, id).is_some()
    }

    /// Gives back units of holds without an id, the first to expire first.
    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        self.drop_expired(state, now);
        Self::refund_of(state, cost, |_| true)
    }

    /// Gives units of a charge back to the hold without an id that it took.
    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        self.drop_expired(state, now);
        Self::refund_of(state, charge.units, |hold| hold.expires == charge.at + self.ttl)
    }

    fn ends(&self, state: &State) -> u64 {
        state.holds.last().map_or(0, |hold| hold.expires)
    }

    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        let (expired_holds, used) = self.count_live(state, now);
        let admits_at = if cost > self.count {
            None
        } else {
            let mut excess = (used + cost).saturating_sub(self.count);
            let mut moment = now;
            for hold in &state.holds[expired_holds..] {
                if excess == 0 {
                    break;
                }
                excess = excess.saturating_sub(hold.units);
                moment = hold.expires;
            }
            Some(moment)
        };
        let resets_at = if used == 0 { now } else { self.ends(state) };
        View { left: left(self.count, used), admits_at, resets_at, ..View::default() }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.count
    }

    fn is_unused(state: &State) -> bool {
        state.total == 0
    }

    fn lease_ends(&self, _view: &View, _charged_at: u64) -> Option<u64> {
        None
    }

    /// Units come back at any moment, because callers hold them.
    fn more_at(&self, _view: &View, _used: u64) -> Option<u64> {
        None
    }

    #[inline]
    fn heap_bytes(state: &State) -> usize {
        boxed(state) + allocated(state.holds.capacity() * size_of::<StoredHold>())
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Held;
    const WORDS: &'static str = "At most {count} in progress at the same time; a hold that is not renewed is given back after \
                                 {span}. How many pass over time depends on how long each takes.";

    fn of(limit: &Limit) -> Self {
        Self { count: limit.count(), ttl: limit.period().micros() }
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const ITEM: u8 = 3;

    const FIELDS: &'static [Field] = &[Field::Moment, Field::Count, Field::Length];

    /// A reply may have more holds than the count. The count may have been larger before, and charges go past it.
    fn list_bytes(limit: &Limit) -> (usize, usize) {
        let count = limit.count();
        let in_use = count.try_into().unwrap_or(usize::MAX / Self::ITEM_BYTES) * Self::ITEM_BYTES;
        (in_use, count.saturating_mul(2).clamp(MIN_HOLDS, MAX_HOLDS) as usize * Self::ITEM_BYTES)
    }

    fn can_have(&self, state: &State) -> bool {
        let ends = [state.holds.first(), state.holds.last()];
        ends.iter().flatten().all(|hold| fits(hold.expires)) && fits(state.touched) && fits(state.total)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.count, self.ttl, 0, 0, 0]
    }

    fn write(state: &State, list: &mut Vec<u8>) -> [u64; 4] {
        put_items(list, state.holds.iter().map(|hold| [hold.expires, hold.id, hold.units]));
        [state.touched, state.total, 0, 0]
    }

    fn read([touched, total, ..]: [u64; 4], list: &[u8]) -> Option<State> {
        let holds = items::<3>(list)?;
        let holds = holds.map(|[expires, id, units]| StoredHold { expires, id, units }).collect();
        Some(State { touched, total, holds })
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRule, Rule, State};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_example_of_this_file() {
        let (rule, mut state) = (Rule { count: 2, ttl: 30 * SECOND }, State::default());
        let (a, b) = (1, 2);
        rule.open(&mut state, 0, 1, a);
        rule.open(&mut state, 10 * SECOND, 1, b);
        assert_eq!(rule.view(&state, 10 * SECOND, 1).admits_at, Some(30 * SECOND));
        assert_eq!([10, 29, 30, 40].map(|now| rule.used(&state, now * SECOND)), [2, 2, 1, 0]);
        assert!(rule.renew(&mut state, 20 * SECOND, b));
        assert_eq!(rule.ends(&state), 50 * SECOND);
        assert!(rule.close(&mut state, 25 * SECOND, a));
        assert!(rule.admits(&state, 25 * SECOND, 1));
        assert!(!rule.close(&mut state, 50 * SECOND, b), "expired");
        rule.charge(&mut state, 60 * SECOND, 2);
        assert_eq!(
            [60, 89, 90].map(|now| rule.used(&state, now * SECOND)),
            [2, 2, 0],
            "a charge is a hold without an id"
        );
    }
}
