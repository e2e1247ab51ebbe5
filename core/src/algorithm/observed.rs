//! States outside their store: made from what an answer of the store reported, or compacted for as long as an answer is
//! repeated.

use super::{HoldId, Rule, State, StoredHold, calendar_window, concurrency, fixed_window, sliding_counter};

/// What an answer of a store reported of one limit and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Units that were in use …
    pub(crate) used: u64,
    /// … at that moment …
    pub(crate) at: u64,
    /// … and when none of them will be.
    pub(crate) ends: u64,
}

impl Rule {
    /// A state that admits no more than the observed one. `holds` are the ids and units of holds that live at `now`.
    pub(crate) fn state_from(&self, observed: Observed, now: u64, holds: &[(HoldId, u64)]) -> State {
        let Observed { used, at, ends } = observed;
        let mut state = self.fresh();
        match (self, &mut state) {
            // Also when it is full: a bucket that starts with less must not read as one that has not started.
            (Self::TokenBucket(rule), State::TokenBucket(state)) => *state = rule.meter().state_ending_at(ends, at),
            (Self::Concurrency(rule), State::Concurrency(state)) => {
                **state = state_of_holds(rule, (used, ends), now, holds);
            }
            _ if used == 0 => {}
            (Self::Gcra(meter), State::Gcra(state)) => *state = meter.state_ending_at(ends, at),
            (Self::LeakyBucket(meter), State::LeakyBucket(state)) => *state = meter.state_ending_at(ends, at),
            (Self::FixedWindow(rule), State::FixedWindow(state)) => {
                *state = fixed_window::State { opened: ends.saturating_sub(rule.period), used };
            }
            (Self::CalendarWindow(rule), State::CalendarWindow(state)) => {
                *state = calendar_window::State { index: calendar_window::index_of(rule.grid, at), used };
            }
            (Self::SlidingCounter(rule), State::SlidingCounter(state)) => {
                *state = match rule.largest_previous(used, at, ends) {
                    Some(previous) => sliding_counter::State { touched: at, previous, current: 0 },
                    None => sliding_counter::State { touched: at, previous: 0, current: used },
                };
            }
            // The answer reports when the newest units came, not the others: all of them count from then on.
            (Self::SlidingWindow(rule), State::SlidingWindow(state)) => {
                rule.charge(state, ends.saturating_sub(rule.period).min(at), used);
            }
            (Self::SlidingLog(rule), State::SlidingLog(state)) => {
                rule.charge(state, ends.saturating_sub(rule.period).min(at), used);
            }
            _ => {}
        }
        state
    }

    /// A smaller state with the same answers before `until`.
    pub(crate) fn compacted(&self, state: State, until: u64) -> State {
        match (self, state) {
            (Self::SlidingWindow(rule), State::SlidingWindow(state)) => {
                State::SlidingWindow(Box::new(rule.compacted(*state, until)))
            }
            (_, state) => state,
        }
    }
}

/// The holds that have an id, and one without an id for all other units.
fn state_of_holds(
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
        state.holds.insert(index, StoredHold { expires: ends, id: 0, units: rest });
        state.total += rest;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::super::Grid;
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    /// A state from an observation admits no more than the state that was observed, and no less once all is over.
    #[test]
    fn an_observed_state_admits_no_more_than_the_original() {
        let rules = [
            Rule::fixed_window(7, 10 * SECOND),
            Rule::calendar_window(7, Grid::uniform(60 * SECOND)),
            Rule::sliding_log(7, 10 * SECOND),
            Rule::sliding_window(7, 10 * SECOND, 20),
            Rule::sliding_counter(7, 10 * SECOND),
            Rule::token_bucket(7, 10 * SECOND, 9, None),
            Rule::gcra(7, 10 * SECOND, 5),
            Rule::leaky_bucket(7, 10 * SECOND, 4),
        ];
        for rule in &rules {
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
                        rule.charge(&mut state, now, cost, 0);
                    }
                }
                now += random(3 * SECOND);
                let view = rule.view(&state, now, 1, 0);
                let observed = Observed { used: rule.capacity() - view.remaining, at: now, ends: view.resets_at };
                let copy = rule.state_from(observed, now, &[]);
                for later in [0, 1, SECOND / 3, SECOND, 3 * SECOND, 9 * SECOND, 20 * SECOND] {
                    let (was, is) = (rule.view(&state, now + later, 1, 0), rule.view(&copy, now + later, 1, 0));
                    assert!(is.remaining <= was.remaining, "{rule:?}: {is:?} after {was:?}, {later} µs later");
                    assert!(
                        later < 20 * SECOND || is.remaining == was.remaining || matches!(rule, Rule::CalendarWindow(_))
                    );
                }
                assert_eq!(rule.view(&copy, now, 1, 0).remaining, view.remaining, "{rule:?}: nothing is lost");
            }
        }
    }

    #[test]
    fn a_compacted_window_gives_the_same_answers_until_its_time_is_over() {
        let rule = Rule::sliding_window(100, 20 * SECOND, 20);
        let mut state = rule.fresh();
        for step in 0..90 {
            rule.charge(&mut state, NOW + step * SECOND / 5, 1, 0);
        }
        let now = NOW + 18 * SECOND;
        let compacted = rule.compacted(state.clone(), now + 3 * SECOND);
        assert!(matches!(&compacted, State::SlidingWindow(state) if state.older.len() <= 1), "{compacted:?}");
        for later in 0..300 {
            let at = now + later * SECOND / 100;
            assert_eq!(rule.view(&compacted, at, 3, 0).remaining, rule.view(&state, at, 3, 0).remaining, "{later}");
        }
    }
}
