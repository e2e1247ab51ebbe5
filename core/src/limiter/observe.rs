//! Turns a response into an operation on the key of its call.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{MAX_LEARNED_WINDOWS, MAX_SAFE_INTEGER, SECOND, Said, SaidLimit};
use crate::decision::Decision;
use crate::http::{BELIEVABLE, Observation};
use crate::plan::Plan;
use crate::store::request::Operation;

/// The observations of the response to a call.
#[derive(Debug, Clone)]
pub struct ObservedCall {
    observations: Vec<Observation>,
    answered: Option<Answered>,
}

/// The call that was answered, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Answered {
    /// The number of calls of the key that were charged then. `None` if it is unknown.
    pub calls: Option<u64>,
    /// The units that it consumed of each limit.
    pub units: SmallVec<[u64; 2]>,
    /// The units that were known to be used of each limit, including its own.
    pub known: SmallVec<[u64; 2]>,
}

impl Answered {
    /// The call that a Decision admitted.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let units = (0..decision.answer().views.len()).map(|index| decision.charged(index)).collect();
        let known = decision.limits().map(|limit| limit.limit.saturating_sub(limit.remaining) + limit.over).collect();
        Self { calls: calls_of(decision), units, known }
    }
}

/// The number of calls of the key that were charged when a Decision was made. `None` if nothing is learned of the key.
#[must_use]
pub fn calls_of(decision: &Decision) -> Option<u64> {
    Some(decision.answer().learned()?.calls)
}

impl ObservedCall {
    /// The other side does not know the units that were charged after the answered call.
    #[must_use]
    pub fn new(observations: Vec<Observation>, answered: Option<Answered>) -> Self {
        Self { observations, answered }
    }

    pub(super) fn operation(&self, plan: &Plan) -> Operation {
        let waits = self.observations.iter().filter_map(|said| said.retry_after).filter(|wait| *wait <= BELIEVABLE);
        let wait = waits.max().map_or(0, micros);
        let limits =
            self.observations.iter().filter_map(|said| self.said_of(said, plan)).take(MAX_LEARNED_WINDOWS).collect();
        let calls = self.answered.as_ref().and_then(|answered| answered.calls);
        Operation::Observe(Arc::new(Said { wait, calls, limits }))
    }

    fn said_of(&self, said: &Observation, plan: &Plan) -> Option<SaidLimit> {
        let asks = plan.policy.asks();
        let place = place_of(said, plan);
        let index = place.map_or(0, |index| index + 1) as u8;
        let own = place.filter(|_| !asks);
        let length = said.window.filter(|window| *window <= BELIEVABLE).map_or(0, micros);
        let period = || own.map_or(SECOND, |index| plan.policy.limits()[index].period().micros());
        let reset = match said.reset_after {
            // Without an end this is no limit, but it answers a call that asks.
            Some(reset) if reset.is_zero() || reset > BELIEVABLE => {
                said.remaining.filter(|_| asks)?;
                0
            }
            Some(reset) => micros(reset).max(1),
            None if length > 0 => length,
            None => period().min(micros(BELIEVABLE)),
        };
        let capacity = own.map(|index| plan.rules[index].capacity());
        let limit = said.limit.or_else(|| capacity.or(said.remaining).filter(|_| said.remaining.is_some()))?;
        // If the stated limit is larger than the policy's own, the remaining units count.
        let limit = limit.min(capacity.unwrap_or(MAX_SAFE_INTEGER)).min(MAX_SAFE_INTEGER);
        Some(SaidLimit {
            id: identity_of(said),
            place: index,
            is_stated: said.limit.is_some(),
            limit,
            used: said.remaining.map_or(0, |remaining| limit.saturating_sub(remaining)),
            reset,
            length,
            capacity: capacity.unwrap_or(0),
            known: self.answered.as_ref().and_then(|answered| Some(*answered.known.get(own?)?)),
            units: self.answered.as_ref().and_then(|answered| Some(*answered.units.get(place?)?)).unwrap_or(1),
        })
    }
}

/// The limit of the policy that an Observation is about. Among those that count its unit, this is the one of its count
/// and length, else of its length, else of its count, else the first.
fn place_of(said: &Observation, plan: &Plan) -> Option<usize> {
    let unit = said.unit.as_ref().map_or("requests", |unit| unit.name());
    let limits = plan.policy.limits().iter().zip(&plan.rules).enumerate();
    let counts = limits
        .filter(|(_, (limit, rule))| !rule.holds() && limit.unit().map_or("requests", |unit| unit.name()) == unit);
    let likeness = |(_, (limit, _)): &(usize, (&crate::policy::Limit, &crate::algorithm::Rule))| {
        // For a paced policy it is longer by the margin.
        let apart = |window: Duration| micros(window).abs_diff(limit.period().micros());
        let same_length = said.window.is_some_and(|window| apart(window) <= limit.period().micros() / 50);
        (same_length, said.limit == Some(limit.count()))
    };
    let mut best: Option<(usize, (bool, bool))> = None;
    for limit in counts {
        let likeness = likeness(&limit);
        if best.is_none_or(|(_, known)| likeness > known) {
            best = Some((limit.0, likeness));
        }
    }
    best.map(|(index, _)| index)
}

/// Distinguishes the limits of a response.
fn identity_of(said: &Observation) -> u64 {
    let window = said.window.map_or(0, micros);
    let unit = said.unit.as_ref().map_or("", |unit| unit.name());
    let text = format!("{window}\n{unit}\n{}", said.name.as_deref().unwrap_or_default());
    let digest = blake3::hash(text.as_bytes());
    let (head, _) = digest.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*head) & MAX_SAFE_INTEGER
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX).min(MAX_SAFE_INTEGER)
}
