//! What users hold: policies, a store and a clock.

mod asynchronous;
mod blocking;
mod builder;
mod call;
mod hold;
mod inbox;
mod line;
mod patience;
mod policies;
mod turn;
mod watch;

pub use asynchronous::AsyncLimiter;
pub use blocking::Limiter;
pub use builder::Builder;
pub use call::Call;
pub use hold::Hold;
pub use inbox::{Charged, Inbox, Outcome, Posted};
pub use policies::{AsPolicy, PolicyRef};
pub use watch::Watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use compact_str::CompactString;

use crate::algorithm::MAX_SAFE_INTEGER;
use crate::clock::{ManualClock, Watcher};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::plan::Plan;
use crate::policy::PolicyFile;
use crate::resilience::{Counters, Layers};
use crate::store::{Answer, Entry, HoldId, Lookout, MAX_ENTRIES, Operation, Source, Store};
use hold::Keeper;
use line::Lines;
use policies::Policies;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 65_536;
/// The longest metadata of an attempt, in bytes.
pub const MAX_META: usize = 65_536;

/// What a check is told besides policy and key.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Units it consumes.
    pub cost: u64,
    /// What the journal remembers of it.
    pub meta: Option<Vec<u8>>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { cost: 1, meta: None }
    }
}

/// What both limiters share.
struct Inner {
    store: Arc<dyn Store>,
    policies: Policies,
    clock: Option<Arc<ManualClock>>,
    file: Option<PathBuf>,
    lines: Lines,
    keeper: Keeper,
    closed: AtomicBool,
    /// The stores' URLs without secrets.
    shown: String,
    /// Mixed into the names of holds.
    seed: u64,
    holds: AtomicU64,
    /// What stands between the limiter and a store that others share.
    layers: Option<Layers>,
    /// Who reads what the servers say.
    lookout: Arc<PerProcess<Lookout>>,
}

impl Inner {
    #[inline]
    fn open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the limiter is closed: make a new one"));
        }
        Ok(())
    }

    #[inline]
    fn plan(&self, policy: &(impl AsPolicy + ?Sized), key: &str) -> Result<Arc<Plan>> {
        self.open()?;
        if key.len() > MAX_KEY {
            return Err(Error::new(
                ErrorKind::KeyInvalid,
                format!("a key has {} bytes: it may have at most {MAX_KEY}", key.len()),
            ));
        }
        self.policies.find(policy.as_policy())
    }

    #[inline]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.micros())
    }

    fn hold_id(&self) -> HoldId {
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        let mixed = blake3::hash(&[self.seed.to_le_bytes(), number.to_le_bytes()].concat());
        let (head, _) = mixed.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        (u64::from_le_bytes(*head) & MAX_SAFE_INTEGER).max(1)
    }

    fn closes(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.keeper.stop();
            self.store.close();
        }
    }

    /// Settles a check where the store has nothing to settle, because a fallback answered it; says whether it did.
    fn settles(&self, decision: &Decision, operation: &Operation) -> bool {
        if decision.source() != Source::Fallback {
            return false;
        }
        self.settles_here(&self.policies.current(decision.plan()), decision.key(), operation);
        true
    }

    fn settles_here(&self, plan: &Arc<Plan>, key: &str, operation: &Operation) {
        if let Some(layers) = &self.layers {
            layers.settle(&Entry { plan, key, operation: operation.clone() }, self.now());
        }
    }

    fn set_rollout(&self, percent: f64) -> Result<()> {
        self.open()?;
        match &self.layers {
            Some(layers) => layers.set_rollout(percent),
            None => Err(crate::resilience::no_rollout()),
        }
    }

    fn counters(&self) -> Counters {
        self.layers.as_ref().map(Layers::counters).unwrap_or_default()
    }

    fn reload(&self) -> Result<()> {
        self.open()?;
        let path = self
            .file
            .as_ref()
            .ok_or_else(|| Error::config("this limiter was not made from a file: there is nothing to reload"))?;
        let file = PolicyFile::read(path)?;
        self.policies.replace(file.policies());
        Ok(())
    }
}

impl Watcher for Inner {
    fn time_passed(&self) {
        self.keeper.renew(self);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closes();
    }
}

/// A cost that a call may have.
#[inline]
fn valid_cost(cost: u64) -> Result<u64> {
    if cost == 0 || cost > MAX_SAFE_INTEGER {
        return Err(Error::new(
            ErrorKind::CostInvalid,
            format!("a cost of {cost} is out of range: it must be a whole number from 1 to 2^53 - 1"),
        ));
    }
    Ok(cost)
}

fn check_operation(options: &CheckOptions) -> Result<Operation> {
    let cost = valid_cost(options.cost)?;
    if let Some(meta) = options.meta.as_ref().filter(|meta| meta.len() > MAX_META) {
        return Err(Error::config(format!("meta has {} bytes: it may have at most {MAX_META}", meta.len())));
    }
    // Redis stores nothing for both; so they are the same everywhere.
    let meta = options.meta.as_deref().filter(|meta| !meta.is_empty());
    Ok(Operation::Check { cost, hold: 0, meta: meta.map(Into::into) })
}

/// What an answer means to the caller.
#[inline(always)]
fn decided(plan: Arc<Plan>, key: impl Into<CompactString>, operation: &Operation, answer: Answer) -> Decision {
    let (cost, charged) = match *operation {
        Operation::Check { cost, .. } => (cost, if answer.applied { cost } else { 0 }),
        Operation::Charge { cost } => (cost, cost),
        Operation::Peek { cost } | Operation::Refund { cost } => (cost, 0),
        _ => (1, 0),
    };
    Decision::new(plan, key, cost, charged, answer)
}

impl Limiter {
    /// The same limiter for tasks.
    #[must_use]
    pub fn to_async(&self) -> AsyncLimiter {
        AsyncLimiter { inner: Arc::clone(&self.inner) }
    }

    /// Whether calls may have to wait for a server; without one they never do.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.inner.layers.is_some()
    }

    /// In a few words what it is, without secrets: the store, and how many policies it has.
    #[must_use]
    pub fn described(&self) -> String {
        let closed = if self.inner.open().is_ok() { "" } else { ", closed" };
        format!("of {}, policies: {}{closed}", self.inner.shown, self.inner.policies.count())
    }
}

impl AsyncLimiter {
    /// The same limiter for threads.
    #[must_use]
    pub fn to_blocking(&self) -> Limiter {
        Limiter { inner: Arc::clone(&self.inner) }
    }
}

/// What `settle` has to do: nothing, charge or refund.
fn difference(charged: u64, actual: u64) -> Result<Option<Operation>> {
    if actual > MAX_SAFE_INTEGER {
        valid_cost(actual)?;
    }
    Ok(match actual {
        _ if actual > charged => Some(Operation::Charge { cost: actual - charged }),
        _ if actual < charged => Some(Operation::Refund { cost: charged - actual }),
        _ => None,
    })
}

/// The entries of a `check_all`.
type Asked = Vec<(Arc<Plan>, String, u64)>;

fn asked<P: AsPolicy>(inner: &Inner, entries: impl IntoIterator<Item = (P, impl AsRef<str>, u64)>) -> Result<Asked> {
    let asked: Asked = entries
        .into_iter()
        .map(|(policy, key, cost)| Ok((inner.plan(&policy, key.as_ref())?, key.as_ref().to_owned(), valid_cost(cost)?)))
        .collect::<Result<_>>()?;
    if asked.is_empty() || asked.len() > MAX_ENTRIES {
        return Err(Error::config(format!(
            "check_all was given {} entries: give from 1 to {}",
            asked.len(),
            MAX_ENTRIES
        )));
    }
    Ok(asked)
}

fn entries(asked: &Asked) -> Vec<Entry<'_>> {
    let operation = |cost: u64| Operation::Check { cost, hold: 0, meta: None };
    asked.iter().map(|(plan, key, cost)| Entry { plan, key, operation: operation(*cost) }).collect()
}

fn decided_all(asked: Asked, answers: Vec<Answer>) -> Result<Decision> {
    let stands = asked.iter().zip(&answers).all(|((plan, ..), answer)| answer.applied || plan.policy.options().shadow);
    let decisions = asked.into_iter().zip(answers).map(|((plan, key, cost), answer)| {
        let charged = if stands && answer.applied { cost } else { 0 };
        Decision::new(plan, &key, cost, charged, answer)
    });
    Decision::of_all(decisions.collect())
        .ok_or_else(|| Error::new(ErrorKind::StoreRejected, "the store answered without an answer"))
}

/// A block's length in microseconds.
fn block_operation(length: Duration) -> Result<Operation> {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let longest = Duration::from_secs(3_660 * 86_400);
    if micros == 0 || length > longest {
        return Err(Error::config(format!("a block of {length:?} is out of range: it must be up to 10 years")));
    }
    Ok(Operation::Block { micros })
}
