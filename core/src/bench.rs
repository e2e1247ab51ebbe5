//! Doors for the benchmarks of this repository, behind the feature `bench`: what users cannot call, measured alone.

use std::hint::black_box;
use std::sync::Arc;

use crate::algorithm::{Rule, State};
use crate::error::Result;
use crate::plan::Plan;
use crate::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::memory::Memory;
use crate::store::redis::script::{Batch, Grouping, Request};
use crate::store::request::{Answer, Entry, Operation};

const CHECK: Operation = Operation::Check { cost: 1, hold: 0, meta: None };

/// The memory store with one policy, without a limiter around it.
pub struct Keyed {
    store: Memory,
    plan: Arc<Plan>,
}

impl Keyed {
    /// A store of at most that many keys.
    #[must_use]
    pub fn new(policy: &Policy, max_keys: usize) -> Self {
        Self { store: Memory::new(max_keys), plan: plan_of(policy) }
    }

    /// Whether a key is admitted.
    ///
    /// # Errors
    /// None.
    pub fn check(&self, key: &str) -> Result<bool> {
        let answer = self.store.ask(&Entry { plan: &self.plan, key, operation: CHECK }, CallContext::default())?;
        Ok(black_box(answer).applied)
    }
}

/// The first limit of a policy alone: rule and state, no store.
pub struct Ruled {
    rule: Rule,
    state: State,
}

impl Ruled {
    /// A fresh state.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let rule = plan_of(policy).rules[0].clone();
        Self { state: rule.fresh(), rule }
    }

    /// Whether a unit is admitted at a moment.
    pub fn check(&mut self, now: u64) -> bool {
        if let Some((meter, state)) = self.rule.as_meter(&mut self.state) {
            return meter.try_charge(state, now, 1).is_some();
        }
        let admits = self.rule.admits(&self.state, now, 1);
        if admits {
            self.rule.charge(&mut self.state, now, 1, 0);
        }
        admits
    }
}

/// Writes checks of these keys as one command; the bytes on the wire.
#[must_use]
pub fn encode(policy: &Policy, keys: &[String]) -> Vec<u8> {
    let plan = plan_of(policy);
    let request = |key: &String| Request::new("tg", &Entry { plan: &plan, key, operation: CHECK });
    Batch::new("tg".into(), None, Grouping::Independent, keys.iter().map(request).collect())
        .command()
        .get_packed_command()
}

/// What the fallback remembers of answers, alone.
pub struct Heard {
    known: crate::resilience::UsageSnapshots,
    plan: Arc<Plan>,
    time: crate::clock::SteadyClock,
    answer: Answer,
}

impl Heard {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let (plan, time) = (plan_of(policy), crate::clock::SteadyClock::default());
        let answer =
            Memory::new(1).ask(&Entry { plan: &plan, key: "", operation: CHECK }, CallContext::at(Some(time.micros())));
        Self { known: Default::default(), plan, time, answer: answer.unwrap_or_default() }
    }

    /// Takes over an answer about a key.
    pub fn hear(&mut self, key: &str) {
        self.answer.now += 1;
        self.known.hear(&Entry { plan: &self.plan, key, operation: CHECK }, &self.answer, self.time.micros(), 0);
    }
}
