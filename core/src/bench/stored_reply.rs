//! The reader of stored values in isolation: a reply of the script with any bytes in place of the value.

use std::sync::Arc;

use redis::Value;

use crate::algorithm::{LeaseTerms, LimitCharge, Rule, State};
use crate::decision::{Decision, LimiterId};
use crate::error::Result;
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::redis::script::{Batch, Grouping, Request};
use crate::store::request::{Answer, Entry, Operation, States};

/// How a stored value begins: see `plan/stored/layout.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchForm {
    /// Counts in one byte, if the policy has this form.
    Narrow,
    /// Counts in as few bytes as the limit's numbers need.
    Compact,
    /// Counts in seven bytes, and the end of a block.
    Full,
}

/// A decoded reply.
pub struct BenchStoredReply {
    plan: Arc<Plan>,
    answer: Answer,
    states: States,
    cost: u64,
}

/// The behavior of one limit for a check after such a reply.
#[derive(Debug)]
pub struct BenchCheck {
    /// The most units it admits at once.
    pub capacity: u64,
    /// Units in use.
    pub used: u64,
    /// True if it admits the cost.
    pub admits: bool,
    /// Units in use after the charge.
    pub charged: u64,
    /// Units in use after the refund.
    pub refunded: u64,
    /// When the state after the charge ends, in microseconds since 1970.
    pub ends: u64,
}

/// The header of the values of a policy. `None` for a form that the policy does not have.
#[must_use]
pub fn stored_header(policy: &Policy, form: BenchForm) -> Option<Vec<u8>> {
    let plan = plan_of(policy);
    match form {
        BenchForm::Narrow => plan.stored.narrow_header.as_ref().map(|header| header.bytes.to_vec()),
        BenchForm::Compact => Some(plan.stored.header.bytes.to_vec()),
        BenchForm::Full => Some(plan.stored.full_header.bytes.to_vec()),
    }
}

fn operation(name: &str, cost: u64) -> Option<Operation> {
    Some(match name {
        "check" => Operation::check(cost),
        "hold" => Operation::Check { cost, hold: 7, details: None },
        "take" => Operation::Take { cost, details: None },
        "peek" => Operation::peek(cost),
        "charge" => Operation::charge(cost),
        "refund" => Operation::Refund { cost, details: None },
        "lease" => Operation::Lease(LeaseTerms { units: cost, life: 5_000 }),
        "renew" => Operation::Renew { hold: 7 },
        "clear" => Operation::Clear,
        "journal" => Operation::Journal,
        _ => return None,
    })
}

/// The answer to one operation, from a reply that was sent at `now` and has these bytes as its item. `None` for an
/// unknown operation.
pub fn answer_of_reply(
    policy: &Policy,
    (name, cost): (&str, u64),
    (now, denied): (u64, bool),
    item: &[u8],
) -> Option<Result<BenchStoredReply>> {
    let (plan, operation) = (plan_of(policy), operation(name, cost)?);
    let entry = Entry { plan: &plan, key: "key", operation };
    let requests = [Request::new(&"tg".into(), &entry)].into_iter().collect();
    let batch = Batch::new("tg".into(), None, Grouping::Independent, requests);
    let mut seal = (now as f64).to_le_bytes().to_vec();
    if denied {
        // The first limit of the first entry.
        seal.extend_from_slice(&(1_u32 << 16 | 1).to_le_bytes());
    }
    seal.extend_from_slice(&batch.number().to_le_bytes());
    let item = match entry.operation {
        Operation::Journal => Value::Array(item.chunks(24).map(|one| Value::BulkString(one.to_vec())).collect()),
        _ => Value::BulkString(item.to_vec()),
    };
    let answers = batch.answers(Value::Array(vec![item, Value::BulkString(seal)]));
    Some(answers.and_then(|mut answers| answers.swap_remove(0)).map(|mut answer| {
        let states = *answer.states.take().unwrap_or_default();
        BenchStoredReply { plan, answer, states, cost }
    }))
}

impl BenchStoredReply {
    /// The Decision that a caller gets.
    #[must_use]
    pub fn decision(&self) -> Decision {
        Decision::new(LimiterId::ELSEWHERE, Arc::clone(&self.plan), "key", self.cost, self.answer.clone())
    }

    /// The value that stores the same states in the compact form. `None` if the server keeps a part of them elsewhere.
    #[must_use]
    pub fn encoded(&self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        self.plan.write_value(self.states.iter(), &[], &mut value);
        (!self.plan.stored.has_companions).then_some(value)
    }

    /// The behavior of each limit for one more check, as in the fallback when the store is lost.
    #[must_use]
    pub fn check(&self, now: u64, cost: u64) -> Vec<BenchCheck> {
        self.plan.rules.iter().zip(&self.states).map(|(rule, state)| checked(rule, state, now, cost)).collect()
    }
}

fn checked(rule: &Rule, state: &State, now: u64, cost: u64) -> BenchCheck {
    let mut state = Rule::bounded(state).unwrap_or_else(|| rule.compacted(state.clone(), now));
    rule.start(&mut state, now);
    let (used, admits) = (rule.used(&state, now), rule.admits(&state, now, cost));
    rule.charge(&mut state, now, cost, 9);
    let (charged, ends) = (rule.used(&state, now), rule.ends(&state));
    rule.renew(&mut state, now, 9);
    if !rule.close(&mut state, now, 9) {
        rule.refund(&mut state, now, cost);
    }
    let refunded = rule.used(&state, now);
    let terms = LeaseTerms { units: cost, life: 5_000 };
    rule.charge_lease(&mut state, now, terms);
    let charge = LimitCharge { units: cost, at: now, life: terms.life, ..LimitCharge::default() };
    rule.give_back(&mut state, now + 1, &charge);
    BenchCheck { capacity: rule.capacity(), used, admits, charged, refunded, ends }
}
