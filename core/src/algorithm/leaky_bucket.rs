//! `leaky-bucket`: a queue with `burst` places that lets one unit go every p/n.
//!
//! **Rule.** The bucket as a queue: a check of cost c is admitted when the queue has room for c units. Its caller then
//! waits for `delay`, the time until everything before it has left the queue, so that traffic leaves at exactly n/p.
//! **State:** the queue is a meter ([`meter`](super::meter)). **Cost:** O(1).
//!
//! **Example,** `leaky-bucket 5/s burst 3`: one unit leaves every 200 ms. Three checks at 0 ms are admitted with delays of
//! 0, 200 and 400 ms; a fourth is refused until 200 ms, and is then admitted with a delay of 400 ms.

use std::ops::Deref;

use super::View;
use super::meter::{Meter, State};

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

    /// The view of a check of `cost`, of which `charged` units were just charged: the check waits for what was in the
    /// queue before them.
    #[inline]
    pub(crate) fn view_with_delay(&self, state: &State, now: u64, cost: u64, charged: u64) -> View {
        let view = self.0.view(state, now, cost);
        let state = self.state_at(state, now);
        let before = state.units.saturating_sub(charged);
        let leaves_at = if before == 0 { now } else { self.drained_at(&state, before) };
        View { delay: leaves_at.saturating_sub(now), ..view }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, State};

    const MILLISECOND: u64 = 1_000;

    #[test]
    fn the_example_of_this_file() {
        let rule = Rule::new(5, 1_000 * MILLISECOND, 3);
        let mut state = State::default();
        for (now, delay) in [(0, 0), (0, 200), (0, 400), (200, 400)] {
            let now = now * MILLISECOND;
            assert!(rule.admits(&state, now, 1));
            rule.charge(&mut state, now, 1);
            assert_eq!(rule.view_with_delay(&state, now, 1, 1).delay, delay * MILLISECOND);
            assert_eq!(rule.admits(&state, now, 1), rule.view(&state, now, 1).remaining() > 0);
        }
        assert!(!rule.admits(&state, 200 * MILLISECOND, 1));
    }
}
