//! `leaky-bucket`: a queue with `burst` places that lets one unit go every p/n.
//!
//! **Rule.** The bucket as a queue: a check of cost c is admitted when the queue has room for c units. Its caller then
//! waits for `delay`, the time until everything before it has left the queue, so that traffic leaves at exactly n/p.
//! **State:** the queue is a meter ([`meter`](super::meter)). **Cost:** O(1).
//!
//! **Example,** `leaky-bucket 5/s burst 3`: one unit leaves every 200 ms. Three checks at 0 ms are admitted with delays of
//! 0, 200 and 400 ms. A fourth is refused until 200 ms, and is then admitted with a delay of 400 ms.

use super::meter::Bucket;
use super::{AlgorithmKind, Limit, Meaning};

pub(crate) type Rule = Bucket<true>;

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Queue;
    const WORDS: &'static str = "A queue of {capacity} places that lets one unit go every {each}: what is admitted gets a delay, \
                                 and leaves evenly.";

    fn of(limit: &Limit) -> Self {
        Self::new(limit.count(), limit.period().micros(), limit.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::super::LimitRule;
    use super::super::meter::State;
    use super::Rule;

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
