//! `gcra`: the generic cell rate algorithm, here in its textbook form of virtual scheduling (ITU-T I.371).
//!
//! **Terms,** for n units per period p with `burst` b (default n):
//! - The *emission interval* T = p/n is the time that one unit takes at the allowed rate.
//! - The *theoretical arrival time* TAT is the moment at which all admitted units, one every T, have passed.
//! - The *burst tolerance* τ is how early a unit may arrive: τ = (b - 1)·T admits b units at once.
//!
//! **Rule.** A unit at time t conforms when t >= TAT - τ. Then TAT becomes max(TAT, t) + T. A check of cost c is c units
//! at once. It is admitted when all of them conform, which is when
//!
//! ```text
//! max(TAT, t) + c·T - t <= b·T
//! ```
//!
//! and then TAT becomes max(TAT, t) + c·T. A refusal changes nothing. A refused check of cost c is admitted from
//! TAT + c·T - b·T on, if no other call charges the key meanwhile. From TAT on the key is as if it had never been used.
//!
//! **State:** TAT, one number in principle. The rule is the one of a meter that drains: (TAT - t) / T is the number of
//! units in it. `meter.rs` explains how TAT stays exact if T is not a whole number of microseconds. **Cost:** O(1).
//!
//! **Example,** `gcra 5/s burst 3`: T = 200 ms, b·T = 600 ms, τ = 400 ms.
//!
//! | t | max(TAT, t) + T - t | admitted | TAT after |
//! |---|---|---|---|
//! | 0 ms | 200 ms | yes | 200 ms |
//! | 0 ms | 400 ms | yes | 400 ms |
//! | 0 ms | 600 ms | yes | 600 ms |
//! | 0 ms | 800 ms | no, from 600 + 200 - 600 = 200 ms on | 600 ms |
//! | 200 ms | 600 ms | yes | 800 ms |
//! | 1000 ms | 200 ms | yes | 1200 ms |
//!
//! The same example through a limiter is the documentation of `Algorithm::Gcra`.

use super::meter::Bucket;
use super::{AlgorithmKind, Limit, Meaning};

pub(crate) type Rule = Bucket<false>;

impl Meaning for Rule {
    const KIND: AlgorithmKind = AlgorithmKind::Bucket;
    const WORDS: &'static str = "Up to {capacity} at once, and one more every {each}.";

    fn of(limit: &Limit) -> Self {
        Self::new(limit.count(), limit.period().micros(), limit.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::super::meter::State;
    use super::super::{LimitRule, Tried, View};
    use super::Rule;

    const MILLISECOND: u64 = 1_000;

    #[test]
    fn the_example_of_this_file() {
        let rule = Rule::new(5, 1_000 * MILLISECOND, 3);
        let mut state = State::default();
        for (now, admitted, tat) in
            [(0, true, 200), (0, true, 400), (0, true, 600), (0, false, 600), (200, true, 800), (1_000, true, 1_200)]
        {
            let tried = rule.try_charge(&mut state, now * MILLISECOND, 1, &mut View::default());
            assert_eq!(matches!(tried, Tried::Admitted { .. }), admitted, "at {now} ms");
            assert_eq!(rule.ends(&state), tat * MILLISECOND, "TAT after the check at {now} ms");
            if !admitted {
                assert_eq!(rule.view(&state, now, 1).admits_at, Some(200 * MILLISECOND));
            }
        }
    }
}
