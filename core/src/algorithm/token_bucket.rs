//! `token-bucket`: a bucket of `burst` tokens that refills continuously at n/p.
//!
//! **Rule.** A check of cost c is admitted when the bucket has c tokens, and takes them. A bucket starts full, or with
//! `initial` tokens. **State:** a meter of the tokens that are missing ([`meter`](super::meter)). **Cost:** O(1).
//!
//! With `initial`, a new key differs from one with a full bucket. So the first call stores the moment at which the
//! bucket started, also when that call is refused: otherwise the tokens it waits for would never come. And a full
//! bucket is kept for a *grace period*, the time it takes to fill, once nothing else of its key matters.
//!
//! **Example,** `token-bucket 5/s burst 10` with `initial: 2`: at 0 ms two units are admitted and a third is refused. A
//! token comes every 200 ms, so the third is admitted at 200 ms. The bucket is full again at 2200 ms.

use super::meter::{Bucket, Meter, State};
#[cfg(feature = "stored")]
use super::stored::{Field, StoredRule};
use super::{AlgorithmKind, LeaseTerms, Limit, LimitCharge, LimitRule, Meaning, Tried, View};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    meter: Bucket<false>,
    pub(crate) capacity: u64,
    /// Tokens that are missing at the start. 0 for a bucket that starts full.
    missing: u64,
}

impl Rule {
    /// A bucket that refills `count` tokens in `period` microseconds and starts with `initial` tokens, or full.
    pub(crate) fn new(count: u64, period: u64, burst: u64, initial: Option<u64>) -> Self {
        let missing = initial.map_or(0, |initial| burst.saturating_sub(initial));
        Self { meter: Bucket::new(count, period, burst), capacity: burst, missing }
    }

    /// True if the bucket has not started.
    #[inline]
    fn is_unstarted(&self, state: &State) -> bool {
        self.missing > 0 && state.since == 0
    }

    /// The state, or the one of a bucket that starts now if it has not started.
    #[inline]
    pub(super) fn started(&self, state: &State, now: u64) -> State {
        if self.is_unstarted(state) { State { since: now, units: self.missing, fraction: 0 } } else { *state }
    }
}

impl LimitRule for Rule {
    type State = State;

    const COUNTS_REFUNDS: (bool, bool) = (true, true);

    /// The grace period: as long as the bucket takes to fill, at least 1 µs. 0 for a bucket that starts full.
    fn grace(&self) -> u64 {
        if self.missing == 0 { 0 } else { self.meter.drained_at(&State::default(), self.capacity).max(1) }
    }

    /// Starts a bucket that has not started. True if it did.
    #[inline]
    fn start(&self, state: &mut State, now: u64) -> bool {
        let unstarted = self.is_unstarted(state);
        if unstarted {
            *state = self.started(state, now);
        }
        unstarted
    }

    fn used(&self, state: &State, now: u64) -> u64 {
        self.meter.used(&self.started(state, now), now)
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.meter.admits(&self.started(state, now), now, cost)
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        *state = self.started(state, now);
        self.meter.charge(state, now, cost);
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        // A refund must not fill a bucket that has not started, because no one has charged it.
        if self.is_unstarted(state) { 0 } else { self.meter.refund(state, now, cost) }
    }

    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        if self.is_unstarted(state) { 0 } else { self.meter.give_back(state, now, charge) }
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        match self.missing {
            0 => self.meter.ends(state),
            // 0 for a bucket that has not started.
            _ => self.meter.drained_at(state, state.units),
        }
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        self.meter.view(&self.started(state, now), now, cost)
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Only a bucket that never started is unused. With `initial`, a full bucket differs from none.
    fn is_unused(state: &State) -> bool {
        state.since == 0
    }

    fn lease_ends(&self, _view: &View, _charged_at: u64) -> Option<u64> {
        None
    }

    fn more_at(&self, view: &View, used: u64) -> Option<u64> {
        self.meter.more_at(view, used)
    }

    fn used_of_leases(&self, state: &State, now: u64, life: u64) -> u64 {
        self.meter.used_of_leases(&self.started(state, now), now, life)
    }

    fn charge_lease(&self, state: &mut State, now: u64, terms: LeaseTerms) {
        *state = self.started(state, now);
        self.meter.charge_lease(state, now, terms);
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }

    #[inline(always)]
    fn try_charge(&self, state: &mut State, now: u64, cost: u64, view: &mut View) -> Tried {
        if self.missing == 0 { self.meter.try_charge(state, now, cost, view) } else { Tried::Untried }
    }

    fn metered(state: &mut State) -> Option<&mut State> {
        Some(state)
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Bucket;
    const WORDS: &'static str = "A bucket of {capacity} that starts {initial} and gets one unit back every {each}.";

    fn of(limit: &Limit) -> Self {
        Self::new(limit.count(), limit.period().micros(), limit.capacity(), limit.initial())
    }
}

#[cfg(feature = "stored")]
impl StoredRule for Rule {
    const FIELDS: &'static [Field] = Bucket::<false>::FIELDS;

    fn can_have(&self, state: &State) -> bool {
        self.meter.can_have(state)
    }

    fn numbers(&self) -> [u64; 5] {
        let [capacity, micros, units, max_units, _] = self.meter.numbers();
        [capacity, micros, units, max_units, self.missing]
    }

    fn write(state: &State, list: &mut Vec<u8>) -> [u64; 4] {
        Bucket::<false>::write(state, list)
    }

    fn read(numbers: [u64; 4], list: &[u8]) -> Option<State> {
        Bucket::<false>::read(numbers, list)
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRule, Rule, State};

    const MILLISECOND: u64 = 1_000;

    #[test]
    fn the_example_of_this_file() {
        let rule = Rule::new(5, 1_000 * MILLISECOND, 10, Some(2));
        // A `since` of 0 would be a bucket that has not started.
        let (mut state, start) = (State::default(), 1_000_000 * MILLISECOND);
        assert!(rule.admits(&state, start, 2) && !rule.admits(&state, start, 3));
        rule.charge(&mut state, start, 2);
        assert_eq!(rule.view(&state, start, 1).admits_at, Some(start + 200 * MILLISECOND));
        rule.charge(&mut state, start + 200 * MILLISECOND, 1);
        assert_eq!(rule.ends(&state), start + 2_200 * MILLISECOND);
        assert_eq!(rule.grace(), 2_000 * MILLISECOND);
    }
}
