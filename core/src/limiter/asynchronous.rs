//! The limiter for tasks. The same calls as [`Limiter`](super::Limiter), awaitable; a test holds the two together.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::{Acquire, AcquireStep};
use super::answer_channel::{awaited, gone, sent};
use super::builder::Builder;
use super::call::Call;
use super::check_all::CheckEntry;
use super::hold::{AskedHold, Hold, HoldAnswer};
use super::operations::{CheckOptions, whole_operation};
use super::policy_ref::AsPolicy;
use super::settle::{ActualCosts, Settling};
use super::{LimiterCore, check_all};
use crate::counting::Counters;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::store::call_context::CallContext;
use crate::store::request::{Answer, Attempt, Entry, Operation};
use crate::store::submit;

/// Checks limits without blocking: checks that wait at the same moment are sent to Redis as one call. Cheap to clone.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let limiter = tidegate::Limiter::builder().policy("login", "20/minute; 5/3s")?.build_async()?;
/// assert!(limiter.check("login", "alice").await?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct AsyncLimiter {
    pub(crate) core: Arc<LimiterCore>,
}

impl AsyncLimiter {
    /// The limiter that a policy file describes.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column; `config_invalid` for its store.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Builder::from_file(path)?.build_async()
    }

    async fn answer(&self, plan: &Arc<Plan>, key: &str, operation: Operation) -> Result<Answer> {
        let mut answered = None;
        let at_once = submit(&self.core.store, &Entry { plan, key, operation }, self.core.context(), || {
            let (answer, awaited) = oneshot::channel();
            answered = Some(awaited);
            move |_, result| sent(answer, result)
        });
        match (at_once, answered) {
            (Some(answer), _) => answer,
            (None, Some(answered)) => answered.await.unwrap_or_else(|_| Err(gone())),
            (None, None) => Err(gone()),
        }
    }

    /// Makes a call.
    async fn call(&self, policy: &(impl AsPolicy + ?Sized), key: &str, call: &Call) -> Result<Decision> {
        let (plan, operation) = self.core.planned(policy, key, call)?;
        self.run(plan, key, operation).await
    }

    async fn run(&self, plan: Arc<Plan>, key: &str, operation: Operation) -> Result<Decision> {
        let answer = self.answer(&plan, key, operation.clone()).await;
        self.core.answers.decided(plan, key, &operation, answer)
    }

    /// The policy that a call would apply.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid` and `closed`.
    pub fn policy(&self, policy: impl AsPolicy) -> Result<Policy> {
        Ok(self.core.plan(&policy, "")?.policy.clone())
    }

    /// Asks and consumes one unit, in one atomic step.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid`, `closed`, the errors of the store, and `config_invalid` for a policy
    /// with a `concurrency` limit, which is for `hold`. A denial is no error.
    ///
    /// # Cancel safety
    /// It is charged once it was polled, also when the future is dropped before the answer. A future that was never polled charges
    /// nothing.
    pub async fn check(&self, policy: impl AsPolicy, key: &str) -> Result<Decision> {
        self.check_with(policy, key, &CheckOptions::default()).await
    }

    /// Asks and consumes `cost` units.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`], and `cost_invalid`.
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::check`].
    pub async fn check_n(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.check_with(policy, key, &CheckOptions::of_cost(cost)).await
    }

    /// Asks and consumes, with all options.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for metadata that is too long, and for a partial check of a policy
    /// that has a `concurrency` or a `leaky-bucket` limit.
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::check`].
    pub async fn check_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        self.call(&policy, key, &Call::Check(options.clone())).await
    }

    /// Asks without consuming.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: a peek changes nothing.
    pub async fn peek(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Peek(cost)).await
    }

    /// Consumes even past the limit: windows count it, buckets go into debt.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::check`].
    pub async fn charge(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Charge(cost)).await
    }

    /// Gives units back, the oldest first where the algorithm can tell them; never above full, never creates credit. Where
    /// there is a Decision, settle it instead: that gives back what is still counted of its own charge.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// The units go back once it was polled, also when the future is dropped before the answer.
    pub async fn refund(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Refund(cost)).await
    }

    /// After the work: charges or refunds the difference between the units that a check consumed and the actual cost.
    /// What goes back is what is still counted of its own charge. A Decision and its copies are settled once, in the process
    /// that got it, by its limiter or one of the same store and prefix. After an error it may be settled again only where
    /// [`Error::did_not_run`](crate::Error::did_not_run) says that nothing was done; otherwise the estimate stays charged.
    ///
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// Of a [`AsyncLimiter::check_all`] the number is for the entries with a cost other than 1, or for all where every cost is 1.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for a Decision that was settled or is another limiter's.
    ///
    /// # Cancel safety
    /// Once it was polled the Decision is settled, also when the future is dropped before the answer. Of a Decision of `check_all`,
    /// the entries that it had not come to are not settled: each of [`Decision::decisions`] can be settled by itself.
    pub async fn settle(&self, decision: &Decision, actual: u64) -> Result<()> {
        self.settle_entries(decision, ActualCosts::One(actual)).await
    }

    /// Settles each entry of a [`AsyncLimiter::check_all`] with a number of its own; `None` leaves an entry as it is.
    ///
    /// # Errors
    /// As [`AsyncLimiter::settle`], and `cost_invalid` for another number of numbers than of entries.
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::settle`].
    pub async fn settle_each(&self, decision: &Decision, actual: &[Option<u64>]) -> Result<()> {
        self.settle_entries(decision, ActualCosts::Each(actual)).await
    }

    async fn settle_entries(&self, decision: &Decision, actual: ActualCosts<'_>) -> Result<()> {
        let mut settling = Settling::begin(&self.core, decision, actual)?;
        while let Some((decision, plan, operation)) = settling.next(&self.core) {
            settling.settled(self.run(plan, decision.key(), operation).await)?;
        }
        Ok(())
    }

    /// Checks several policies and keys, each with a cost or with [`CheckOptions`]: all are charged, or none is.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for no entries or more than 256.
    ///
    /// # Cancel safety
    /// Once it was polled all entries are charged, or none is, also when the future is dropped before the answer.
    pub async fn check_all(&self, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<Decision> {
        let entries = check_all::resolved(&self.core, entries)?;
        let answers =
            awaited(|done| self.core.store.submit_all(&check_all::borrowed(&entries), self.core.context(), done))
                .await?;
        check_all::decided_all(&self.core, entries, answers)
    }

    /// Waits until it is admitted, at most that long (`None`: without a deadline). The Decision is a denial when it cannot be
    /// admitted in time, or when too many callers wait already. Callers that wait for the same key are admitted in the order
    /// they came.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// A caller whose future is dropped leaves the line, and asks no more. What it was asking the store for at that moment is charged
    /// if it is admitted. The store keeps its place in the line of all processes for a second.
    pub async fn acquire(
        &self,
        policy: impl AsPolicy,
        key: &str,
        cost: u64,
        timeout: Option<Duration>,
    ) -> Result<Decision> {
        self.acquire_with(policy, key, &CheckOptions::of_cost(cost), timeout).await
    }

    /// As [`AsyncLimiter::acquire`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_with`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::acquire`].
    pub async fn acquire_with(
        &self,
        policy: impl AsPolicy,
        key: &str,
        options: &CheckOptions,
        timeout: Option<Duration>,
    ) -> Result<Decision> {
        let plan = self.core.plan(&policy, key)?;
        let operation = whole_operation("acquire", options, &plan, 0)?;
        let mut acquire = Acquire::begin(&self.core, &plan, key, &operation, timeout)?;
        loop {
            match acquire.step()? {
                AcquireStep::Ask(operation) => {
                    if let Some(decision) = acquire.answered(self.answer(&plan, key, operation).await?) {
                        return Ok(decision);
                    }
                }
                AcquireStep::Sleep { signal, count, longest } => signal.wait_async(count, longest).await,
            }
        }
    }

    /// How many callers of this limiter wait for a key in `acquire`; 0 for an unknown policy.
    pub fn waiting(&self, policy: impl AsPolicy, key: &str) -> usize {
        self.core.waiting(&policy, key).unwrap_or(0)
    }

    /// Takes units of a `concurrency` limit; they are renewed until the hold is dropped, and given back then.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for a policy without a `concurrency` limit. A policy that is full is no
    /// error: the answer has the denied Decision.
    ///
    /// # Cancel safety
    /// Units that the store grants after the future was dropped are given back at once; when the store cannot be reached, by their
    /// ttl. What other limits of the policy charged stays charged.
    pub async fn hold(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<HoldAnswer> {
        self.hold_with(policy, key, &CheckOptions::of_cost(cost)).await
    }

    /// As [`AsyncLimiter::hold`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_with`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::hold`].
    pub async fn hold_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        let plan = self.core.plan(&policy, key)?;
        let id = self.core.hold_id();
        let operation = whole_operation("hold", options, &plan, id)?;
        let began = self.core.hold_renewer.time(&self.core);
        let asked = AskedHold::new(&self.core, &plan, key, id);
        let answer = self.run(Arc::clone(&plan), key, operation).await;
        asked.answered();
        let decision = answer?;
        if !decision.allowed() {
            return Ok(HoldAnswer::Denied(decision));
        }
        Ok(HoldAnswer::Held(Hold::new(&self.core, id, decision, began, false)))
    }

    /// Denies the key for that long, regardless of its usage.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`], and `config_invalid` for no time or more than 10 years.
    ///
    /// # Cancel safety
    /// The key is blocked once it was polled, also when the future is dropped before the answer.
    pub async fn block(&self, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        self.call(&policy, key, &Call::Block(length)).await.map(drop)
    }

    /// Ends a block.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::block`]: the block ends.
    pub async fn unblock(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(&policy, key, &Call::Unblock).await.map(drop)
    }

    /// Forgets a key's usage and ends its block. Its journal stays.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::block`]: the usage is forgotten.
    pub async fn clear(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(&policy, key, &Call::Clear).await.map(drop)
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`].
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: reading changes nothing.
    pub async fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        let plan = self.core.plan(&policy, key)?;
        if plan.policy.options().journal == 0 {
            return Ok(Vec::new());
        }
        Ok(self.answer(&plan, key, Operation::Journal).await?.into_attempts())
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// Why it does not, in one sentence.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn ping(&self) -> Result<()> {
        self.core.open()?;
        awaited(|done| self.core.store.submit_ping(CallContext::default(), done)).await
    }

    /// Gives that share of the keys to the new store of a rollout, from the next call on. A larger share has all keys of a
    /// smaller one.
    ///
    /// # Errors
    /// `config_invalid` without a rollout, and for a number that is no percentage.
    pub fn set_rollout(&self, percent: f64) -> Result<()> {
        self.core.set_rollout(percent)
    }

    /// The counters since the limiter was made; for `memory://` all but the last are zero.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// Reads the changed policy file. It is taken as a whole or not at all. Policies that were given in code stay.
    ///
    /// # Errors
    /// Then nothing has changed: `policy_invalid` with file, line and column; `config_invalid` when the file names another
    /// store, or lacks a policy that is in use ([`AsyncLimiter::use_policy`]).
    pub fn reload(&self) -> Result<()> {
        self.core.reload()
    }

    /// Closes the limiter; every later call fails with `closed`. Holds are given back when they are dropped, or by their ttl.
    pub fn close(&self) {
        self.core.close();
    }
}
