//! Runs the calls of a group in the order of their times, and puts uncertain events between them wherever that makes a difference,
//! until every answer is explained. When all ways have failed, nothing explains the answers.

use std::collections::HashSet;

use tidegate::Policy;

use super::event::{DecidedCall, Happening, History, UncertainEvent};
use super::moments;
use super::possible_state::PossibleState;
use crate::budget::is_full;
use crate::model::Model;

/// The most runs of calls in a model for one group. Otherwise a few groups would take longer than all others together.
fn most_runs() -> u32 {
    if is_full() { 60_000 } else { 8_000 }
}

/// The most uncertain events of a group.
const MOST_EVENTS: usize = 128;
/// The most calls of the same microsecond.
const MOST_TIES: usize = 6;

/// The most states that a message shows.
const MOST_SHOWN: usize = 3;

/// Calls of the same microsecond: `count` of them from `first` on. The bits in `left` mark those that have not run yet.
#[derive(Clone, Copy)]
struct Ties {
    first: usize,
    count: usize,
    at: u64,
    left: u32,
}

/// The result of the search for an explanation.
#[derive(Debug)]
pub(super) enum Verdict {
    Explained,
    Undecided,
    Unexplained(String),
}

struct Search<'a> {
    policies: &'a [Policy],
    history: &'a History<'a>,
    runs: u32,
    most_runs: u32,
    remembers: bool,
    slack: u64,
    /// The states that were tried, each with the number of calls before it.
    tried: HashSet<(usize, String)>,
    /// The largest number of calls that some state explained, and some such states.
    farthest: (usize, Vec<PossibleState>),
}

/// Too many runs.
struct TooLong;

pub(super) fn explain(policies: &[Policy], history: &History<'_>, slack: u64) -> Verdict {
    if history.uncertain.len() > MOST_EVENTS {
        return Verdict::Undecided;
    }
    let remembers = history.uncertain.iter().any(|event| matches!(event.what, Happening::Newest));
    let mut search = Search {
        policies,
        history,
        runs: 0,
        most_runs: most_runs(),
        remembers,
        slack,
        tried: HashSet::new(),
        farthest: (0, Vec::new()),
    };
    match search.explains_from(PossibleState::new(), 0) {
        Ok(true) => Verdict::Explained,
        Ok(false) => Verdict::Unexplained(search.message()),
        Err(TooLong) => Verdict::Undecided,
    }
}

impl Search<'_> {
    /// True if the calls from a number on can be explained from a state.
    fn explains_from(&mut self, state: PossibleState, first: usize) -> Result<bool, TooLong> {
        let Some(call) = self.history.decided.get(first) else { return Ok(true) };
        if !self.tried.insert((first, state.text(self.may_go_back(&state)))) {
            return Ok(false);
        }
        if first > self.farthest.0 {
            self.farthest = (first, Vec::new());
        }
        if first == self.farthest.0 && self.farthest.1.len() < MOST_SHOWN {
            self.farthest.1.push(state.clone());
        }
        let ties = self.history.decided[first..].iter().take_while(|other| other.at == call.at).count();
        if ties > MOST_TIES {
            return Err(TooLong);
        }
        self.explains(state, Ties { first, count: ties, at: call.at, left: (1 << ties) - 1 })
    }

    /// The same from a moment at which some of its calls have run. It first tries to do without an uncertain event.
    fn explains(&mut self, state: PossibleState, ties: Ties) -> Result<bool, TooLong> {
        if ties.left == 0 {
            return self.explains_from(state, ties.first + ties.count);
        }
        if !self.misses_a_certain_event(&state, ties.at) {
            for index in (0..ties.count).filter(|index| ties.left >> index & 1 == 1) {
                let decided = &self.history.decided[ties.first + index];
                let mut after = state.clone();
                let expected =
                    self.run(&mut after, decided.until, |state, policies| state.run(policies, decided.call, ties.at))?;
                let left = ties.left & !(1 << index);
                let of_late_read = self.was_read_late(&after, decided)?.then(|| {
                    let mut unchanged = state.clone();
                    unchanged.pass(ties.at);
                    unchanged
                });
                let in_order = expected.is(decided.values).then_some(after);
                for possible in in_order.into_iter().chain(of_late_read) {
                    if self.explains(possible, Ties { left, ..ties })? {
                        return Ok(true);
                    }
                }
            }
        }
        self.explains_with_an_event(&state, ties)
    }

    /// True if a call that changes nothing has read an earlier state. A call that changes something would have lost its swap.
    fn was_read_late(&mut self, after: &PossibleState, decided: &DecidedCall<'_>) -> Result<bool, TooLong> {
        if self.slack == 0 {
            return Ok(false);
        }
        let earlier: Vec<Model> = after.readable(decided.from).cloned().collect();
        for model in earlier {
            let mut still = model.clone();
            still.set(decided.at);
            let mut state = after.clone();
            state.model = model;
            let run = |state: &mut PossibleState, policies: &[Policy]| state.run(policies, decided.call, decided.at);
            let expected = self.run(&mut state, decided.at, run)?;
            if expected.is(decided.values) && state.model.stores_the_same(&still) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs an event in a state. It ends then: until its end it may not be visible, if the store has slack.
    fn run<T>(
        &mut self,
        state: &mut PossibleState,
        until: u64,
        run: impl FnOnce(&mut PossibleState, &[Policy]) -> T,
    ) -> Result<T, TooLong> {
        self.runs += 1;
        if self.runs > self.most_runs {
            return Err(TooLong);
        }
        if self.remembers || self.slack > 0 {
            state.remember(until);
        }
        Ok(run(state, self.policies))
    }

    /// True if an earlier state may come back.
    fn may_go_back(&self, state: &PossibleState) -> bool {
        let events = self.history.uncertain.iter().enumerate();
        let left = |(bit, event): (usize, &UncertainEvent<'_>)| {
            matches!(event.what, Happening::Newest) && state.happened >> bit & 1 == 0
        };
        self.remembers && events.into_iter().any(left)
    }

    fn misses_a_certain_event(&self, state: &PossibleState, at: u64) -> bool {
        let events = self.history.uncertain.iter().enumerate();
        events.into_iter().any(|(bit, event)| event.certain && event.until < at && state.happened >> bit & 1 == 0)
    }

    /// True if an earlier event in the list would do the same. Then only that one is tried.
    fn has_twin(&self, state: &PossibleState, bit: usize) -> bool {
        let event = &self.history.uncertain[bit];
        let is_twin = |other: &UncertainEvent<'_>| match (other.what, event.what) {
            (Happening::Call(one, None), Happening::Call(other_call, None)) => {
                !other.certain && !event.certain && one == other_call
            }
            _ => false,
        };
        (0..bit).any(|other| state.happened >> other & 1 == 0 && is_twin(&self.history.uncertain[other]))
    }

    fn explains_with_an_event(&mut self, state: &PossibleState, ties: Ties) -> Result<bool, TooLong> {
        let history = self.history;
        for (bit, event) in history.uncertain.iter().enumerate().take_while(|(_, event)| event.from <= ties.at) {
            let (from, until) = (event.from.max(state.now), event.until.min(ties.at));
            if state.happened >> bit & 1 == 1 || from > until || self.has_twin(state, bit) {
                continue;
            }
            let mut happened = state.clone();
            happened.happened |= 1 << bit;
            let explains = match event.what {
                Happening::Everything => self.explains_after_loss(&happened, ties, from)?,
                Happening::Newest => {
                    self.explains_after_loss(&happened, ties, from)?
                        || self.explains_from_copy(&happened, ties, from)?
                }
                Happening::Call(call, answer) => {
                    let range = (from, until);
                    // With slack the next answer may not show the call yet.
                    let may_go_back = self.slack > 0 || self.may_go_back(state);
                    let moments =
                        moments::to_try(self.policies, history, state, range, ties.first, (call, answer), may_go_back);
                    self.explains_after_call(&happened, ties, event, &moments)?
                }
            };
            if explains {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn explains_after_loss(&mut self, state: &PossibleState, ties: Ties, at: u64) -> Result<bool, TooLong> {
        let mut empty = state.clone();
        self.run(&mut empty, at, |state, _| state.lose_everything(at))?;
        self.explains(empty, ties)
    }

    /// Tries the copies that a server may have gone back to: each has the state of some earlier moment.
    fn explains_from_copy(&mut self, state: &PossibleState, ties: Ties, at: u64) -> Result<bool, TooLong> {
        let mut earlier = state.earlier.clone();
        let mut tried = HashSet::from([format!("{:?}", state.model)]);
        while let Some(one) = earlier {
            if tried.insert(format!("{:?}", one.model)) {
                let mut copy = state.clone();
                self.run(&mut copy, at, |state, _| (state.model, state.now) = (one.model.clone(), at))?;
                if self.explains(copy, ties)? {
                    return Ok(true);
                }
            }
            earlier = one.before.clone();
        }
        Ok(false)
    }

    /// Tries an uncertain call at each of these moments.
    fn explains_after_call(
        &mut self,
        happened: &PossibleState,
        ties: Ties,
        event: &UncertainEvent<'_>,
        moments: &[u64],
    ) -> Result<bool, TooLong> {
        let Happening::Call(call, answer) = event.what else { return Ok(false) };
        for moment in moments {
            let mut after = happened.clone();
            let expected = self.run(&mut after, event.until.min(*moment + self.slack), |state, policies| {
                state.run(policies, call, *moment)
            })?;
            // An event that changes nothing and may not have happened need not be tried.
            let changes = || {
                let mut still = happened.model.clone();
                still.set(*moment);
                format!("{still:?}") != format!("{:?}", after.model)
            };
            let agrees = answer.is_none_or(|answer| expected.is(answer));
            if agrees && (event.certain || expected.admits() || changes()) && self.explains(after, ties)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The recorded answer, and those of the model in the states that explain all earlier answers.
    fn message(&self) -> String {
        let (first, states) = &self.farthest;
        let decided = &self.history.decided[*first];
        let mut text = format!("at {} {:?}\n  was told {:?}", decided.at, decided.record.call, decided.values);
        for state in states {
            let expected = state.clone().run(self.policies, decided.call, decided.at);
            text += &format!("\n  expected {expected:?}");
        }
        for earlier in self.history.decided[first.saturating_sub(6)..*first].iter().rev() {
            text += &format!("\n  before it, at {}: {:?} {:?}", earlier.at, earlier.call, earlier.values);
        }
        text + &format!("\n  client {}, uncertain: {:?}", decided.record.client, self.history.uncertain)
    }
}
