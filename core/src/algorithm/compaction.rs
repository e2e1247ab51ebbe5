//! Makes states smaller that are outside their store: for as long as an answer is repeated, or in exchange for units
//! that come back later than they would.

use super::{Rule, State, StoredHold, concurrency, sliding_log, sliding_window};

/// The most items of a list that [`Rule::bounded`] leaves as they are: 1 kB of granules or of log entries …
const MAX_ENTRIES: usize = 64;
/// … and 24 kB of holds, which need their names to be renewed.
const MAX_HOLDS: usize = 1_024;

impl Rule {
    /// A smaller state with the same answers before `until`.
    pub(crate) fn compacted(&self, state: State, until: u64) -> State {
        match (self, state) {
            (Self::SlidingWindow(rule), State::SlidingWindow(state)) => {
                State::SlidingWindow(Box::new(rule.compacted(*state, until)))
            }
            (_, state) => state,
        }
    }

    /// A smaller copy of a state that takes much memory. `None` if the state is small. Neighbours of its list become one
    /// item, which leaves with the last of them, so that at every moment at least as many units count as before.
    #[inline]
    pub(crate) fn bounded(state: &State) -> Option<State> {
        match state {
            State::SlidingWindow(state) if state.older.len() > MAX_ENTRIES => {
                let merged = |(_, units): (u64, u64), (last, more): (u64, u64)| (last, units + more);
                let older = grouped(state.older.iter().copied(), MAX_ENTRIES, merged);
                Some(State::SlidingWindow(Box::new(sliding_window::State { older, ..**state })))
            }
            State::SlidingLog(state) if state.entries.len() > MAX_ENTRIES => {
                // The total after the last entry of a group is the total after the group.
                let (count, per_group) = (state.entries.len(), state.entries.len().div_ceil(MAX_ENTRIES));
                let last = |group: usize| state.entries[((group + 1) * per_group).min(count) - 1];
                let entries = (0..count.div_ceil(per_group)).map(last).collect();
                Some(State::SlidingLog(Box::new(sliding_log::State { entries, ..**state })))
            }
            State::Concurrency(state) if state.holds.len() > MAX_HOLDS => {
                let merged = |one: StoredHold, other: StoredHold| {
                    let StoredHold { expires, units, .. } = other;
                    StoredHold { expires, id: 0, units: one.units + units }
                };
                let holds = grouped(state.holds.iter().copied(), MAX_HOLDS, merged);
                Some(State::Concurrency(Box::new(concurrency::State { holds, ..**state })))
            }
            _ => None,
        }
    }
}

/// Merges neighbours into at most `most` groups.
fn grouped<T: Copy, C: FromIterator<T>>(
    mut items: impl ExactSizeIterator<Item = T>,
    most: usize,
    merged: impl Fn(T, T) -> T,
) -> C {
    let per_group = items.len().div_ceil(most);
    std::iter::from_fn(|| items.by_ref().take(per_group).reduce(&merged)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    fn rule(notation: &str) -> Rule {
        Rule::of(&Policy::parse(notation).expect("a policy").limits()[0])
    }

    fn window(period: u64, granules: u64) -> Rule {
        Rule::SlidingWindow(sliding_window::Rule { count: 3_000, period, granule: period / granules })
    }

    #[test]
    fn a_compacted_window_gives_the_same_answers_until_its_time_is_over() {
        let rule = rule("100/20s");
        let mut state = rule.fresh();
        for step in 0..90 {
            rule.charge(&mut state, NOW + step * SECOND / 5, 1, 0);
        }
        let now = NOW + 18 * SECOND;
        let compacted = rule.compacted(state.clone(), now + 4 * SECOND);
        assert!(matches!(&compacted, State::SlidingWindow(state) if state.older.len() == 2), "{compacted:?}");
        for later in 0..400 {
            let at = now + later * SECOND / 100;
            assert_eq!(rule.view(&compacted, at, 3, 0).remaining(), rule.view(&state, at, 3, 0).remaining(), "{later}");
        }
    }

    #[test]
    fn a_bounded_state_is_small_and_admits_no_more_at_any_moment() {
        let rules = [window(10 * SECOND, 1_000), rule("sliding-log 3000/10s"), rule("concurrency 3000 ttl 10s")];
        for rule in &rules {
            let mut state = rule.fresh();
            for step in 0..2_000 {
                let (length, most) = match &state {
                    State::SlidingWindow(state) => (state.older.len(), MAX_ENTRIES),
                    State::SlidingLog(state) => (state.entries.len(), MAX_ENTRIES),
                    State::Concurrency(state) => (state.holds.len(), MAX_HOLDS),
                    state => panic!("{state:?} has no list"),
                };
                assert_eq!(Rule::bounded(&state).is_some(), length > most, "{length} in {rule:?}");
                rule.charge(&mut state, NOW + step * SECOND / 250, 1, step + 1);
            }
            let bounded = Rule::bounded(&state).expect("it is large");
            assert!(bounded.heap_bytes() <= 25_000, "{} bytes", bounded.heap_bytes());
            assert!(rule.view(&state, NOW + 8 * SECOND, 1, 0).remaining() < 1_100, "it is in use");
            for later in 0..2_000 {
                let at = NOW + 8 * SECOND + later * SECOND / 100;
                let (was, is) = (rule.view(&state, at, 1, 0), rule.view(&bounded, at, 1, 0));
                assert!(
                    is.remaining() <= was.remaining(),
                    "{rule:?}, {later}: {} after {}",
                    is.remaining(),
                    was.remaining()
                );
                assert!(later > 0 || is.remaining() == was.remaining(), "{rule:?}: nothing is lost");
            }
            let ends = rule.ends(&state);
            assert_eq!(rule.ends(&bounded), ends);
            assert_eq!(rule.view(&bounded, ends, 1, 0).remaining(), 3_000, "{rule:?}: all units come back");
        }
    }

    #[test]
    fn the_bytes_of_a_state_are_those_of_its_box_and_of_the_places_of_its_list() {
        assert_eq!(rule("fixed-window 3/s").fresh().heap_bytes(), 0);
        let kinds = [
            (rule("sliding-log 3000/2000s"), size_of::<(u64, u64)>(), size_of::<sliding_log::State>()),
            (window(2_000 * SECOND, 2_000), size_of::<(u64, u64)>(), size_of::<sliding_window::State>()),
            (rule("concurrency 3000 ttl 2000s"), size_of::<StoredHold>(), size_of::<concurrency::State>()),
        ];
        for (rule, item, own) in kinds {
            let mut state = rule.fresh();
            assert!((own..own + 24).contains(&state.heap_bytes()), "{} bytes of nothing", state.heap_bytes());
            for step in 1..=1_000 {
                rule.charge(&mut state, NOW + step * SECOND, 1, step);
            }
            let (list, bytes) = (1_000 * item, state.heap_bytes());
            assert!(bytes >= own + list && bytes <= 2 * list + own + 64, "{bytes} bytes, of {item} each, in {rule:?}");
        }
    }
}
