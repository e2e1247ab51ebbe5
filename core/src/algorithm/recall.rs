//! States outside their store: made anew from what a store said, or kept for as long as an answer is repeated.

use super::{Hold, HoldId, Rule, State, calendar_window, concurrency, fixed_window, sliding_counter};

/// Granules of a window that an answer kept for a moment tells apart; more are counted as leaving together, at the end.
pub(super) const GRANULES: usize = 32;

/// What somebody outside the store knows of one limit and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Units that were in use …
    pub(crate) used: u64,
    /// … at that moment …
    pub(crate) at: u64,
    /// … and when all of it will be over.
    pub(crate) ends: u64,
}

impl Rule {
    /// A state that admits no more than the one that said so; `holds` are those that are known by name and live at `now`.
    pub(crate) fn resumed(&self, heard: Heard, now: u64, holds: &[(HoldId, u64)]) -> State {
        let Heard { used, at, ends } = heard;
        let mut state = self.fresh();
        match (self, &mut state) {
            // A full bucket is not one that was never seen, where those start with less.
            (Self::TokenBucket(rule), State::TokenBucket(state)) => *state = rule.meter().ending(at, ends),
            (Self::Concurrency(rule), State::Concurrency(state)) => {
                **state = resumed_holds(rule, (used, ends), now, holds);
            }
            _ if used == 0 => {}
            (Self::Gcra(meter), State::Gcra(state)) => *state = meter.ending(at, ends),
            (Self::LeakyBucket(meter), State::LeakyBucket(state)) => *state = meter.ending(at, ends),
            (Self::FixedWindow(rule), State::FixedWindow(state)) => {
                *state = fixed_window::State { opened: ends.saturating_sub(rule.period), used };
            }
            (Self::CalendarWindow(rule), State::CalendarWindow(state)) => {
                *state = calendar_window::State { index: calendar_window::index_of(rule.grid, at), used };
            }
            (Self::SlidingCounter(rule), State::SlidingCounter(state)) => {
                *state = match rule.faded(used, at, ends) {
                    Some(previous) => sliding_counter::State { touched: at, previous, current: 0 },
                    None => sliding_counter::State { touched: at, previous: 0, current: used },
                };
            }
            // Nothing says when the units came, except the last ones: all are taken to have come with those.
            (Self::SlidingWindow(rule), State::SlidingWindow(state)) => {
                rule.add(state, ends.saturating_sub(rule.period).min(at), used);
            }
            (Self::SlidingLog(rule), State::SlidingLog(state)) => {
                rule.add(state, ends.saturating_sub(rule.period).min(at), used);
            }
            _ => {}
        }
        state
    }

    /// The state for looks before `until`, small.
    pub(crate) fn kept(&self, state: State, until: u64) -> State {
        match (self, state) {
            (Self::SlidingWindow(rule), State::SlidingWindow(state)) => {
                State::SlidingWindow(Box::new(rule.kept(*state, until)))
            }
            (_, state) => state,
        }
    }
}

/// The holds known by name, and one that nobody renews for the rest.
fn resumed_holds(
    rule: &concurrency::Rule,
    (used, ends): (u64, u64),
    now: u64,
    holds: &[(HoldId, u64)],
) -> concurrency::State {
    let mut state = concurrency::State::default();
    for (id, units) in holds {
        rule.open(&mut state, now, *units, *id);
    }
    let rest = used.saturating_sub(state.total);
    if rest > 0 && ends > now {
        let index = state.holds.partition_point(|hold| hold.expires <= ends);
        state.holds.insert(index, Hold { expires: ends, id: 0, units: rest });
        state.total += rest;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    /// Whoever resumes from what a view said admits no more than the state it came from, and no less once all is over.
    #[test]
    fn nobody_is_given_more_than_was_left() {
        let notations = [
            "fixed-window 7/10s",
            "calendar-window 7/minute",
            "sliding-log 7/10s",
            "sliding-window 7/10s",
            "sliding-counter 7/10s",
            "token-bucket 7/10s burst 9",
            "gcra 7/10s burst 5",
            "leaky-bucket 7/10s burst 4",
        ];
        for notation in notations {
            let plan = Policy::parse(notation).expect("a policy").plan();
            let rule = &plan.rules[0];
            let mut numbers = 1_u64;
            let mut random = |end: u64| {
                numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (numbers >> 33) % end
            };
            for _ in 0..300 {
                let mut state = rule.fresh();
                let mut now = NOW + random(60 * SECOND);
                for _ in 0..random(12) {
                    now += random(3 * SECOND);
                    let cost = 1 + random(2);
                    if rule.admits(&state, now, cost) {
                        rule.add(&mut state, now, cost, 0);
                    }
                }
                now += random(3 * SECOND);
                let view = rule.view(&state, now, 1, 0);
                let heard = Heard { used: rule.capacity() - view.remaining, at: now, ends: view.resets_at };
                let resumed = rule.resumed(heard, now, &[]);
                for later in [0, 1, SECOND / 3, SECOND, 3 * SECOND, 9 * SECOND, 20 * SECOND] {
                    let (was, is) = (rule.view(&state, now + later, 1, 0), rule.view(&resumed, now + later, 1, 0));
                    assert!(is.remaining <= was.remaining, "{notation}: {is:?} after {was:?}, {later} µs later");
                    assert!(later < 20 * SECOND || is.remaining == was.remaining || notation.contains("minute"));
                }
                assert_eq!(rule.view(&resumed, now, 1, 0).remaining, view.remaining, "{notation}: nothing is lost");
            }
        }
    }

    #[test]
    fn a_kept_window_says_the_same_until_its_time_is_over() {
        let plan = Policy::parse("sliding-window 100/20s").expect("a policy").plan();
        let rule = &plan.rules[0];
        let mut state = rule.fresh();
        for step in 0..90 {
            rule.add(&mut state, NOW + step * SECOND / 5, 1, 0);
        }
        let now = NOW + 18 * SECOND;
        let kept = rule.kept(state.clone(), now + 3 * SECOND);
        assert!(matches!(&kept, State::SlidingWindow(kept) if kept.older.len() <= 1), "{kept:?}");
        for later in 0..300 {
            let at = now + later * SECOND / 100;
            assert_eq!(rule.view(&kept, at, 3, 0).remaining, rule.view(&state, at, 3, 0).remaining, "{later}");
        }
    }
}
