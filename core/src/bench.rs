//! Parts of the crate in isolation, for the benchmarks and tests of this repository, behind the feature `bench`.

mod replies;
mod stored_reply;

use std::hint::black_box;
use std::sync::Arc;

use crate::algorithm::{LeaseTerms, Rule, State, Tried, View};
use crate::error::Result;
use crate::limiter::Limiter;
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::process::clock::SteadyClock;
use crate::resilience::UsageSnapshots;
use crate::resilience::ask;
use crate::store::memory::Memory;
pub use crate::store::redis::script::compiler::script_files;
use crate::store::redis::script::{Batch, Grouping, Request};
use crate::store::request::{Answer, Charge, Entry, Operation, States};
use crate::store::url::MemoryBounds;
pub use replies::BenchReplies;
pub use stored_reply::{BenchCheck, BenchForm, BenchStoredReply, answer_of_reply, stored_header};

const CHECK: Operation = Operation::check(1);

fn memory(max_keys: usize) -> Memory {
    Memory::new(MemoryBounds { max_keys, max_bytes: 1_000_000_000 }, Arc::default())
}

/// The memory store with one policy, without a limiter around it.
pub struct BenchStore {
    store: Memory,
    plan: Arc<Plan>,
}

impl BenchStore {
    /// A store of at most that many keys.
    #[must_use]
    pub fn new(policy: &Policy, max_keys: usize) -> Self {
        Self { store: memory(max_keys), plan: plan_of(policy) }
    }

    /// True if a key is admitted.
    ///
    /// # Errors
    /// None.
    pub fn check(&self, key: &str) -> Result<bool> {
        let answer = self.store.answer(&Entry { plan: &self.plan, key, operation: CHECK }, None);
        Ok(black_box(answer).applied)
    }
}

/// The first limit of a policy alone: rule and state, no store.
pub struct BenchRule {
    rule: Rule,
    state: State,
}

impl BenchRule {
    /// A fresh state.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let rule = plan_of(policy).rules[0].clone();
        Self { state: rule.fresh(), rule }
    }

    /// True if a unit is admitted at a moment.
    pub fn check(&mut self, now: u64) -> bool {
        match self.rule.try_charge(&mut self.state, now, 1, &mut View::default()) {
            Tried::Admitted { .. } => true,
            Tried::Refused => false,
            Tried::Untried => {
                let admits = self.rule.admits(&self.state, now, 1);
                if admits {
                    self.rule.charge(&mut self.state, now, 1, 0);
                }
                admits
            }
        }
    }
}

/// The bytes of one command that checks these keys.
#[must_use]
pub fn encode(policy: &Policy, keys: &[String]) -> Vec<u8> {
    let plan = plan_of(policy);
    let request = |key: &String| Request::new(&"tg".into(), &Entry { plan: &plan, key, operation: CHECK });
    let batch = Batch::new("tg".into(), None, Grouping::Independent, keys.iter().map(request).collect());
    let mut command = Vec::new();
    batch.write(false, false, &mut command);
    command
}

/// The usage snapshots of the fallback alone.
pub struct BenchSnapshots {
    snapshots: UsageSnapshots,
    plan: Arc<Plan>,
    clock: SteadyClock,
    answer: Answer,
    states: States,
}

impl BenchSnapshots {
    /// Without snapshots.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let (plan, clock) = (plan_of(policy), SteadyClock::default());
        let (memory, now) = (memory(1), clock.micros());
        let entry = Entry { plan: &plan, key: "", operation: CHECK };
        let answer = memory.answer(&entry, Some(now));
        let states = memory.states(&entry, now);
        Self { snapshots: UsageSnapshots::default(), plan, clock, answer, states }
    }

    /// Takes over the usage that an answer about a key shows.
    pub fn observe(&mut self, key: &str) {
        self.answer.now += 1;
        let entry = Entry { plan: &self.plan, key, operation: CHECK };
        // A reply is read into new states.
        let states = Box::new(self.states.clone());
        self.snapshots.observe(&entry, &self.answer, *states, self.clock.micros(), 0);
    }
}

/// Takes units in advance, without the layer that spends them. Returns their number, the time, and the state of the limits.
///
/// # Errors
/// Those of the store.
pub fn lease(limiter: &Limiter, policy: &Policy, key: &str, units: u64, life: u64) -> Result<(u64, u64, String)> {
    let operation = Operation::Lease(LeaseTerms { units, life });
    let answer = ask(&*limiter.core.store, &Entry { plan: &plan_of(policy), key, operation }, limiter.core.context())?;
    Ok((answer.granted, answer.now, format!("{} {:?}", answer.applied, answer.views)))
}

/// Gives back units of such a lease that were not spent.
///
/// # Errors
/// Those of the store.
pub fn give_back(
    limiter: &Limiter,
    policy: &Policy,
    key: &str,
    (units, life): (u64, u64),
    taken_at: u64,
) -> Result<String> {
    let plan = plan_of(policy);
    let charge = Arc::new(Charge { life, ..Charge::at(&plan, taken_at) });
    let operation = Operation::GiveBack { units, charge };
    let answer = ask(&*limiter.core.store, &Entry { plan: &plan_of(policy), key, operation }, limiter.core.context())?;
    Ok(format!("{:?}", answer.views))
}
