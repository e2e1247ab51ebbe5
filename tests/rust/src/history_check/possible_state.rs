//! A state that the store may have at some moment of a history.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use tidegate::Policy;

use crate::call_records::{Call, Operation, overridden};
use crate::decision_values::DecisionValues;
use crate::model::Model;

/// The answer that a call must get.
#[derive(Debug)]
pub(super) enum Expected {
    /// All values of the Decision.
    Whole(DecisionValues),
    /// For calls that ask nothing: only `remaining` and `reset_after` of each limit.
    Usage(DecisionValues),
    /// There is no Decision.
    Nothing,
}

impl Expected {
    /// True if it is the answer to a check that is admitted.
    pub(super) const fn admits(&self) -> bool {
        matches!(self, Self::Whole(values) if values.allowed && !values.shadow)
    }

    pub(super) fn is(&self, found: &DecisionValues) -> bool {
        let usage = |values: &DecisionValues| -> Vec<(u64, u64)> {
            values.limits.iter().map(|limit| (limit.remaining, limit.reset_after)).collect()
        };
        match self {
            Self::Whole(values) => values == found || *values == without_overrides(found),
            Self::Usage(values) => usage(values) == usage(found),
            Self::Nothing => false,
        }
    }
}

/// The answer without its flags for overrides, which the model does not set. The limits show an override anyway.
fn without_overrides(found: &DecisionValues) -> DecisionValues {
    let decisions = found.decisions.iter().map(without_overrides).collect();
    DecisionValues { overridden: false, decisions, ..found.clone() }
}

/// An earlier state. A server may still have a copy of it.
pub(super) struct EarlierState {
    pub(super) model: Model,
    /// The end of the event that it did not have yet.
    pub(super) until: u64,
    pub(super) before: Option<Rc<EarlierState>>,
}

/// One state that explains the history so far.
#[derive(Clone)]
pub(super) struct PossibleState {
    pub(super) model: Model,
    /// The moment of its last event.
    pub(super) now: u64,
    /// A bit for each uncertain event that has happened.
    pub(super) happened: u128,
    pub(super) earlier: Option<Rc<EarlierState>>,
    /// A hash of all earlier states.
    lineage: u64,
}

impl PossibleState {
    pub(super) fn new() -> Self {
        Self { model: Model::default(), now: 0, happened: 0, earlier: None, lineage: 0 }
    }

    pub(super) fn pass(&mut self, at: u64) {
        self.now = at;
        self.model.set(at);
    }

    /// Runs a call at a moment.
    pub(super) fn run(&mut self, policies: &[Policy], call: &Call, at: u64) -> Expected {
        self.pass(at);
        let model = &mut self.model;
        let (name, key, cost) = &call.entries[0];
        let own = model.own(name, key).cloned();
        let (policy, cost) = (own.as_ref().unwrap_or_else(|| named(policies, name)), *cost);
        match call.operation {
            Operation::Check => Expected::Whole(model.check(policy, key, cost, None)),
            Operation::Peek => Expected::Whole(model.peek(policy, key, cost)),
            Operation::Charge => {
                model.charge(policy, key, cost);
                Expected::Usage(model.peek(policy, key, cost))
            }
            Operation::Refund => {
                model.refund(policy, key, cost);
                Expected::Usage(model.peek(policy, key, cost))
            }
            Operation::Clear => {
                model.clear(policy, key);
                Expected::Nothing
            }
            Operation::Block => {
                model.block(policy, key, call.length);
                Expected::Nothing
            }
            Operation::Override => {
                let base = named(policies, name);
                model.set_own(base, key, overridden(base).filter(|_| call.length > 0));
                Expected::Nothing
            }
            Operation::CheckAll => {
                let own: Vec<_> = call.entries.iter().map(|(name, key, _)| model.own(name, key).cloned()).collect();
                let entries = call.entries.iter().zip(&own).map(|((name, key, cost), own)| {
                    (own.as_ref().unwrap_or_else(|| named(policies, name)), key.as_str(), *cost)
                });
                let entries: Vec<(&Policy, &str, u64)> = entries.collect();
                Expected::Whole(model.check_all(&entries))
            }
        }
    }

    /// Forgets everything.
    pub(super) fn lose_everything(&mut self, at: u64) {
        (self.model, self.now) = (Model::default(), at);
    }

    /// Keeps the state that an event is about to change until then, in case a server goes back to it or a call still reads it.
    pub(super) fn remember(&mut self, until: u64) {
        self.lineage = hash(&(self.lineage, format!("{:?}", self.model)));
        let (model, before) = (self.model.clone(), self.earlier.take());
        self.earlier = Some(Rc::new(EarlierState { model, until, before }));
    }

    /// The earlier states that a call may have read if it began then: what they miss had not ended yet.
    pub(super) fn readable(&self, from: u64) -> impl Iterator<Item = &Model> {
        std::iter::successors(self.earlier.as_deref(), |state| state.before.as_deref())
            .take_while(move |state| state.until >= from)
            .map(|state| &state.model)
    }

    /// Two states with the same text behave the same from now on. The text has the earlier states if one may come back.
    pub(super) fn text(&self, may_go_back: bool) -> String {
        format!("{} {} {:?}", self.happened, if may_go_back { self.lineage } else { 0 }, self.model)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The policy with that name.
pub(super) fn named<'a>(policies: &'a [Policy], name: &str) -> &'a Policy {
    policies.iter().find(|policy| policy.name() == name).unwrap_or_else(|| panic!("a record names {name:?}"))
}
