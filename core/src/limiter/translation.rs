//! Translates a call to the numbers of its key. A call is made for one version of its policy, and the key may have an override.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::algorithm::AlgorithmKind;
use crate::plan::{Amount, Amounts, LimitTag, Plan};
use crate::policy::Unit;
use crate::store::request::{Charge, ChargedAmount, Details, Operation, OwnedEntry};

/// A call as its caller made it. Each repetition begins from it, because a translated cost has lost parts of the caller's cost.
pub(crate) trait RepeatableCall: Send {
    /// The operation for the numbers of a plan.
    fn operation(&self, plan: &Arc<Plan>) -> Operation;
}

/// The operation of a call, for the plan that it was made for.
pub(super) struct AskedOperation {
    plan: Arc<Plan>,
    operation: Operation,
}

impl AskedOperation {
    pub(super) const fn new(plan: Arc<Plan>, operation: Operation) -> Self {
        Self { plan, operation }
    }

    /// The call of an entry that is still as its caller made it.
    pub(super) fn of(entry: &OwnedEntry) -> Self {
        Self { plan: Arc::clone(&entry.plan), operation: entry.operation.clone() }
    }
}

/// An operation on its way to the store.
pub(crate) struct Asking {
    pub(super) operation: Operation,
    /// Makes the operation for other numbers of the key, if `operation` alone is not enough for that.
    pub(super) asked: Option<Box<dyn RepeatableCall>>,
    /// When the call gives up, if that is before the timeout of the store.
    pub(super) deadline: Option<Instant>,
}

impl Asking {
    pub(super) const fn until(operation: Operation, deadline: Option<Instant>) -> Self {
        Self { operation, asked: None, deadline }
    }
}

impl From<Operation> for Asking {
    fn from(operation: Operation) -> Self {
        Self::until(operation, None)
    }
}

impl RepeatableCall for AskedOperation {
    fn operation(&self, plan: &Arc<Plan>) -> Operation {
        if Arc::ptr_eq(plan, &self.plan) {
            self.operation.clone()
        } else {
            translated(&self.operation, &self.plan, plan)
        }
    }
}

/// The call of an entry. Without `asked`, the entry is as its caller made it.
pub(super) fn asked_or(asked: Option<Box<dyn RepeatableCall>>, entry: &OwnedEntry) -> Box<dyn RepeatableCall> {
    asked.unwrap_or_else(|| Box::new(AskedOperation::of(entry)))
}

/// Translates an operation for one version of a policy to the numbers of a key.
fn translated(operation: &Operation, from: &Plan, to: &Plan) -> Operation {
    let details = || {
        let meta = operation.details().and_then(|details| details.meta.clone());
        Details { meta, amounts: amounts(operation, from, to), line: operation.line() }.shared()
    };
    match operation {
        Operation::Check { cost, hold, .. } => Operation::Check { cost: *cost, hold: *hold, details: details() },
        Operation::Acquire { cost, hold, .. } => Operation::Acquire { cost: *cost, hold: *hold, details: details() },
        Operation::Turn { cost, .. } if !to.takes_turns => {
            Operation::Acquire { cost: *cost, hold: 0, details: details() }
        }
        Operation::Turn { cost, within, instead_of, .. } => {
            Operation::Turn { cost: *cost, within: *within, instead_of: *instead_of, details: details() }
        }
        Operation::Take { cost, .. } if is_whole(to) => Operation::Check { cost: *cost, hold: 0, details: details() },
        Operation::Take { cost, .. } => Operation::Take { cost: *cost, details: details() },
        Operation::Peek { cost, .. } => Operation::Peek { cost: *cost, details: details() },
        Operation::Charge { cost, .. } => Operation::Charge { cost: *cost, details: details() },
        Operation::Surcharge { cost, .. } => Operation::Surcharge { cost: *cost, details: details() },
        Operation::Refund { cost, .. } => Operation::Refund { cost: *cost, details: details() },
        Operation::GiveBack { units, charge } => {
            Operation::GiveBack { units: *units, charge: Arc::new(charge_of(charge, from, to)) }
        }
        Operation::Observe(said) => Operation::Observe(Arc::new(said.translated(|place| {
            let place = place_of(to, from.format.tags.get(place)?)?;
            Some((place, to.rules[place].capacity()))
        }))),
        other => other.clone(),
    }
}

/// True if a check of a key is granted as a whole or not at all.
fn is_whole(plan: &Plan) -> bool {
    let is_queue = |limit: &crate::policy::Limit| limit.algorithm().kind() == AlgorithmKind::Queue;
    plan.is_unlimited() || plan.is_held || plan.has_units || plan.policy.limits().iter().any(is_queue)
}

/// The units that an operation takes of each limit of `to`. A limit that names its unit gets the call's units of that
/// name, or nothing if the call has none.
fn amounts(operation: &Operation, from: &Plan, to: &Plan) -> Amounts {
    if to.is_unlimited() {
        return to.rules.iter().map(|_| Amount::of(0)).collect();
    }
    let is_take = matches!(operation, Operation::Take { .. }) && !is_whole(to);
    let asked = if is_take { 1 } else { operation.named_cost() };
    let amounts = to.policy.limits().iter().zip(&to.rules).map(|(limit, rule)| {
        let same = from.policy.limits().iter().position(|other| other.unit() == limit.unit());
        let known = same.and_then(|index| {
            let amount = *operation.amounts()?.get(index)?;
            // The same share of this limit, rounded up.
            let (capacity, of) = (u128::from(rule.capacity()), u128::from(from.rules[index].capacity().max(1)));
            let reserve = u64::try_from((u128::from(amount.reserve) * capacity).div_ceil(of)).unwrap_or(u64::MAX);
            Some(Amount { units: if operation.amounts().is_some() { amount.units } else { asked }, reserve })
        });
        known.unwrap_or_else(|| match limit.unit() {
            None => Amount::of(asked),
            // Only the call itself is a request, and not the surcharge for its work.
            Some(unit) if unit.is(Unit::REQUESTS) && !matches!(operation, Operation::Surcharge { .. }) => Amount::of(1),
            Some(_) => Amount::of(0),
        })
    });
    let amounts: Amounts = amounts.collect();
    let is_plain = asked > 0 && amounts.iter().all(|amount| *amount == Amount::of(asked));
    if is_plain { Amounts::new() } else { amounts }
}

/// A charge in the form that the limits of `to` need.
fn charge_of(charge: &Charge, from: &Plan, to: &Plan) -> Charge {
    let places: SmallVec<[Option<usize>; 3]> = to.format.tags.iter().map(|tag| place_of(from, tag)).collect();
    let limits = places.iter().zip(&to.rules).map(|(place, rule)| {
        let empty_at = charge.limits.get((*place)?).copied().flatten()?;
        match (rule.meter(), from.rules[(*place)?].meter()) {
            (Some(meter), Some(other)) if meter.has_interval_of(other) => Some(empty_at),
            (Some(meter), Some(other)) => meter.drains_no_slower_than(other).then_some(0),
            _ => Some(0),
        }
    });
    let amounts = if charge.amounts.is_empty() {
        SmallVec::new()
    } else {
        let none = ChargedAmount { back: 0, charged: 0 };
        places.iter().map(|place| place.and_then(|place| charge.amounts.get(place).copied()).unwrap_or(none)).collect()
    };
    Charge { limits: limits.collect(), amounts, ..charge.clone() }
}

/// The place of that limit in a plan.
fn place_of(plan: &Plan, tag: &LimitTag) -> Option<usize> {
    plan.format.tags.iter().position(|other| other.is_same_limit(tag))
}
