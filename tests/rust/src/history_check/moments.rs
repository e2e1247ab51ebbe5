//! The moments at which an uncertain call can have run with different consequences.
//!
//! A call runs between two calls with known times. Later answers can show only two things about its moment: the side of
//! some moment on which it lies, or that a moment in an answer is a fixed distance away. So it is enough to try each of
//! these moments, and one between every two.

use tidegate::{Algorithm, Limit, Policy};

use super::event::{Happening, History, UncertainEvent};
use super::possible_state::{PossibleState, named};
use crate::call_records::{Call, Operation};
use crate::decision_values::DecisionValues;

/// The distances after a charge at which a limit may show it: an answer names the moment of the charge plus one of them.
fn distances(limit: &Limit, units: u64) -> Vec<u64> {
    let period = limit.period().micros();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            let returned =
                |units: u64| (u128::from(units) * u128::from(period)).div_ceil(u128::from(limit.count().max(1)));
            (1..=units).map(|units| returned(units) as u64).collect()
        }
        Algorithm::SlidingWindow | Algorithm::SlidingCounter | Algorithm::CalendarWindow => Vec::new(),
        _ => vec![period],
    }
}

/// The length of a step, if the limit counts in steps of the clock.
fn step(limit: &Limit) -> Option<u64> {
    match limit.algorithm() {
        Algorithm::SlidingWindow => Some(limit.period().micros() / u64::from(limit.precision())),
        Algorithm::SlidingCounter | Algorithm::CalendarWindow => Some(limit.period().micros()),
        _ => None,
    }
}

/// True if answers long after a charge may still show its moment. With other limits the next answer shows everything.
fn remembers_each_charge(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::SlidingLog | Algorithm::Concurrency)
}

/// The moments that an answer of `at` names.
fn named_by(at: u64, values: &DecisionValues) -> Vec<u64> {
    let mut waits = vec![0];
    for part in values.decisions.iter().chain([values]) {
        waits.extend([part.retry_after, part.next_after].into_iter().flatten());
        let of_limits = part.limits.iter();
        waits.extend(of_limits.flat_map(|one| [Some(one.reset_after), one.retry_after, one.next_after]).flatten());
    }
    waits.into_iter().map(|wait| at + wait).collect()
}

/// The answers to later calls about a policy and key, with their times and costs.
fn later<'a>(
    history: &'a History<'_>,
    next: usize,
    policy: &'a str,
    key: &'a str,
) -> impl Iterator<Item = (u64, &'a DecisionValues, u64)> {
    history.decided[next..].iter().flat_map(move |decided| {
        let entries = decided.call.entries.iter().enumerate();
        let about = entries.filter(move |(_, (its_policy, its_key, _))| its_policy == policy && its_key == key);
        about.map(move |(index, (.., cost))| {
            (decided.at, decided.values.decisions.get(index).unwrap_or(decided.values), *cost)
        })
    })
}

/// Moments from `from` to `until`.
struct Moments {
    from: u64,
    until: u64,
    all: Vec<u64>,
}

impl Moments {
    fn add(&mut self, moment: u64) {
        if (self.from..=self.until).contains(&moment) {
            self.all.push(moment);
        }
    }

    /// In order, with one between every two.
    fn finished(mut self) -> Vec<u64> {
        self.all.sort_unstable();
        self.all.dedup();
        let between: Vec<u64> = self.all.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2).collect();
        self.all.extend(between);
        self.all.sort_unstable();
        self.all.dedup();
        self.all
    }
}

/// The moments from `from` to `until` to try for a call, if `next` is the next call with a known time. `may_go_back` is
/// true if an answer may show a state of long ago, because data may have been lost.
pub(super) fn to_try(
    policies: &[Policy],
    history: &History<'_>,
    state: &PossibleState,
    (from, until): (u64, u64),
    next: usize,
    (call, answer): (&Call, Option<&DecisionValues>),
    may_go_back: bool,
) -> Vec<u64> {
    // Only the order of these among other events makes a difference.
    let orders = matches!(call.operation, Operation::Clear | Operation::Override);
    if orders || (call.operation == Operation::Block && call.length == 0) {
        return vec![from];
    }
    let mut moments = Moments { from, until, all: vec![from, until] };
    let mut model = state.model.clone();
    model.set(from);
    let units: u64 = history.uncertain.iter().map(units_of).sum();
    for (name, key, cost) in &call.entries {
        let own = state.model.own(name, key);
        let policy = own.unwrap_or_else(|| named(policies, name));
        named_by(from, &model.peek(policy, key, *cost)).into_iter().for_each(|moment| moments.add(moment));
        // The answer gives the distance to moments that follow from the state after the call.
        if let Some(answer) = answer {
            for run_at in [from, until] {
                let mut after = state.clone();
                after.run(policies, call, run_at);
                for moment in named_by(run_at, &after.model.peek(policy, key, *cost)) {
                    named_by(0, answer).into_iter().for_each(|own| moments.add(moment.saturating_sub(own)));
                }
            }
        }
        let blocks = policy
            .options()
            .block_for
            .as_ref()
            .and_then(|blocks| blocks.lengths().iter().map(|length| length.micros()).max());
        for length in blocks.into_iter().chain((call.length > 0).then_some(call.length)) {
            for (at, values, _) in later(history, next, name, key).take_while(|(at, ..)| *at <= until + length) {
                let waits = [Some(0), values.retry_after].into_iter().flatten();
                waits.for_each(|wait| moments.add((at + wait).saturating_sub(length)));
            }
        }
        if call.operation == Operation::Block {
            continue;
        }
        for (index, limit) in policy.limits().iter().enumerate() {
            if let Some(step) = step(limit).filter(|step| (until - from) / step < 1_000) {
                (from.div_ceil(step)..=until / step).for_each(|number| moments.add(number * step));
            }
            let all = may_go_back || remembers_each_charge(limit);
            let first = later(history, next, name, key).next().map(|(at, ..)| at);
            for (at, values, cost) in later(history, next, name, key).take_while(|(at, ..)| all || Some(*at) == first) {
                // Calls of the same moment may have charged before that answer.
                let others = later(history, next, name, key).filter(|(other, ..)| *other == at).map(|(.., cost)| cost);
                let distances = distances(limit, units + others.sum::<u64>().max(cost));
                let shown = &values.limits[index];
                let of_answer = [shown.retry_after.filter(|_| all), shown.next_after.filter(|_| all), all.then_some(0)];
                let waits = of_answer.into_iter().chain([Some(shown.reset_after)]);
                for wait in waits.flatten() {
                    distances.iter().for_each(|distance| moments.add((at + wait).saturating_sub(*distance)));
                }
            }
        }
    }
    moments.finished()
}

fn units_of(event: &UncertainEvent<'_>) -> u64 {
    match event.what {
        Happening::Call(call, _) => call.entries.iter().map(|(.., cost)| cost).sum(),
        _ => 0,
    }
}
