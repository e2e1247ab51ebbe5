//! `leaky-bucket`: a queue with `burst` places that lets one unit go every p/n.
//!
//! **Rule.** The bucket as a queue: a check of cost c is admitted when the queue has room for c units. Its caller then
//! waits for `delay`, the time until everything before it has left the queue, so that traffic leaves at exactly n/p.
//! **State:** the queue is a meter ([`meter`](super::meter)). **Cost:** O(1).
//!
//! **Example,** `leaky-bucket 5/s burst 3`: one unit leaves every 200 ms. Three checks at 0 ms are admitted with delays of
//! 0, 200 and 400 ms; a fourth is refused until 200 ms, and is then admitted with a delay of 400 ms.

use std::ops::Deref;

use super::meter::{Meter, State};
#[cfg(feature = "redis")]
use super::stored::{Field, StoredRule};
use super::{AlgorithmKind, Limit, LimitCharge, LimitRule, Meaning, View};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule(Meter);

impl Deref for Rule {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.0
    }
}

impl Rule {
    pub(crate) fn new(count: u64, period: u64, burst: u64) -> Self {
        Self(Meter::new(count, period, burst))
    }
}

impl LimitRule for Rule {
    type State = State;

    /// The check waits for what was in the queue before it.
    #[inline]
    fn view_after(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        let view = self.0.view(state, now, cost);
        let state = self.state_at(state, now);
        let before = state.units.saturating_sub(charged);
        let leaves_at = if before == 0 { now } else { self.drained_at(&state, before) };
        View { delay: leaves_at.saturating_sub(now), ..view }
    }

    #[inline]
    fn view(&self, state: &State, now: u64, cost: u64) -> View {
        self.0.view(state, now, cost)
    }

    fn used(&self, state: &State, now: u64) -> u64 {
        self.0.used(state, now)
    }

    #[inline]
    fn admits(&self, state: &State, now: u64, cost: u64) -> bool {
        self.0.admits(state, now, cost)
    }

    #[inline]
    fn charge(&self, state: &mut State, now: u64, cost: u64) {
        self.0.charge(state, now, cost);
    }

    fn refund(&self, state: &mut State, now: u64, cost: u64) -> u64 {
        self.0.refund(state, now, cost)
    }

    fn give_back(&self, state: &mut State, now: u64, charge: &LimitCharge) -> u64 {
        self.0.give_back(state, now, charge)
    }

    fn counts_refunds(by_decision: bool) -> bool {
        Meter::counts_refunds(by_decision)
    }

    #[inline]
    fn ends(&self, state: &State) -> u64 {
        self.0.ends(state)
    }

    fn is_unused(state: &State) -> bool {
        Meter::is_unused(state)
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.0.capacity
    }

    fn lease_ends(&self, _view: &View, _charged_at: u64) -> Option<u64> {
        None
    }

    fn more_at(&self, view: &View, used: u64) -> Option<u64> {
        self.0.more_at(view, used)
    }

    fn meter(&self) -> Option<&Meter> {
        Some(&self.0)
    }

    fn metered(state: &mut State) -> Option<&mut State> {
        Some(state)
    }
}

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Queue;
    const WORDS: &'static str = "A queue of {capacity} places that lets one unit go every {each}: what is admitted gets a delay, \
                                 and leaves evenly.";

    fn of(limit: &Limit) -> Self {
        Self::new(limit.count(), limit.period().micros(), limit.capacity())
    }
}

#[cfg(feature = "redis")]
impl StoredRule for Rule {
    const FIELDS: &'static [Field] = Meter::FIELDS;

    #[cfg(feature = "bench")]
    fn written(state: &State) -> Option<([u64; 4], Vec<u64>)> {
        Meter::written(state)
    }

    fn can_have(&self, state: &State) -> bool {
        self.0.can_have(state)
    }

    fn numbers(&self) -> [u64; 5] {
        self.0.numbers()
    }

    fn read(numbers: [u64; 4], list: &[u8]) -> Option<State> {
        Meter::read(numbers, list)
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRule, Rule, State};

    const MILLISECOND: u64 = 1_000;

    #[test]
    fn the_example_of_this_file() {
        let rule = Rule::new(5, 1_000 * MILLISECOND, 3);
        let mut state = State::default();
        for (now, delay) in [(0, 0), (0, 200), (0, 400), (200, 400)] {
            let now = now * MILLISECOND;
            assert!(rule.admits(&state, now, 1));
            rule.charge(&mut state, now, 1);
            assert_eq!(rule.view_after(&state, now, 1, 1).delay, delay * MILLISECOND);
            assert_eq!(rule.admits(&state, now, 1), rule.view(&state, now, 1).remaining() > 0);
        }
        assert!(!rule.admits(&state, 200 * MILLISECOND, 1));
    }
}
