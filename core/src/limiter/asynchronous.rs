//! The limiter for tasks. The same calls as [`Limiter`](super::Limiter), awaitable; a test holds the two together.

use std::path::Path;
use std::time::Duration;

use super::AsyncLimiter;
use super::builder::Builder;
use super::call::Call;
use super::caller::User;
use super::check_all::CheckEntry;
use super::hold::HoldAnswer;
use super::operations::CheckOptions;
use super::policy_ref::AsPolicy;
use super::policy_uses::PolicyUse;
use super::cost::Cost;
use super::settle::{ActualCosts, actual_costs};
use crate::counting::Counters;
use crate::counting::Stats;
use crate::decision::Decision;
use crate::error::Result;
use crate::policy::Policy;
use crate::store::request::Attempt;

impl AsyncLimiter {
    /// The limiter that a policy file describes.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column; `config_invalid` for its store.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Builder::from_file(path)?.build_async()
    }

    async fn call(&self, policy: &impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        self.core.call_of(policy, key, call, User::Task).await
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
    pub async fn peek(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(&policy, key, &Call::Peek(cost.into())).await
    }

    /// Consumes even past the limit: windows count it, buckets go into debt.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::check`].
    pub async fn charge(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(&policy, key, &Call::Charge(cost.into())).await
    }

    /// Gives units back, the oldest first where the algorithm can tell them; never above full, never creates credit. Where
    /// there is a Decision, settle it instead: that gives back what is still counted of its own charge.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`].
    ///
    /// # Cancel safety
    /// The units go back once it was polled, also when the future is dropped before the answer.
    pub async fn refund(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(&policy, key, &Call::Refund(cost.into())).await
    }

    /// After the work: charges or refunds the difference between the units that a check consumed and the actual cost.
    /// What goes back is what is still counted of its own charge. A Decision and its copies are settled once, in the process
    /// that got it, by its limiter or one of the same store and prefix. After an error it may be settled again only where
    /// [`Error::did_not_run`](crate::Error::did_not_run) says that nothing was done; otherwise the estimate stays charged.
    ///
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// After [`AsyncLimiter::check_all`] the number is for the entries with a cost other than 1, or for all where every cost is 1.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for a Decision that was settled or is another limiter's.
    ///
    /// # Cancel safety
    /// Once it was polled the Decision is settled, also when the future is dropped before the answer. Of a Decision of `check_all`,
    /// the entries that it had not come to are not settled: each of [`Decision::decisions`] can be settled by itself.
    pub async fn settle(&self, decision: &Decision, actual: impl Into<Cost>) -> Result<()> {
        self.core.settle(decision, ActualCosts::One(&actual.into()), User::Task).await
    }

    /// Settles each entry of a [`AsyncLimiter::check_all`] with a number of its own; `None` leaves an entry as it is.
    ///
    /// # Errors
    /// As [`AsyncLimiter::settle`], and `cost_invalid` for another number of numbers than of entries.
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::settle`].
    pub async fn settle_each(&self, decision: &Decision, actual: &[Option<impl Into<Cost> + Clone>]) -> Result<()> {
        self.core.settle(decision, ActualCosts::Each(&actual_costs(actual)), User::Task).await
    }

    /// Checks several policies and keys, each with a cost or with [`CheckOptions`]: all are charged, or none is.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_n`], and `config_invalid` for no entries or more than 256.
    ///
    /// # Cancel safety
    /// Once it was polled all entries are charged, or none is, also when the future is dropped before the answer.
    pub async fn check_all(&self, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<Decision> {
        self.core.check_all(entries, User::Task).await
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
        cost: impl Into<Cost>,
        timeout: Option<Duration>,
    ) -> Result<Decision> {
        self.acquire_with(policy, key, &cost.into().into(), timeout).await
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
        self.core.acquire(&policy, key, options, timeout, User::Task).await
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
    pub async fn hold(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<HoldAnswer> {
        self.hold_with(policy, key, &cost.into().into()).await
    }

    /// As [`AsyncLimiter::hold`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check_with`].
    ///
    /// # Cancel safety
    /// As [`AsyncLimiter::hold`].
    pub async fn hold_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        self.core.hold(&policy, key, options, User::Task).await
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

    /// Forgets everything that is stored under the prefix of this limiter: see [`Limiter::clear_all`](crate::Limiter::clear_all).
    ///
    /// # Errors
    /// As [`Limiter::clear_all`](crate::Limiter::clear_all).
    ///
    /// # Cancel safety
    /// It goes on once it was polled, also when the future is dropped.
    pub async fn clear_all(&self) -> Result<()> {
        self.core.clear_all(User::Task).await
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    ///
    /// # Errors
    /// As [`AsyncLimiter::check`].
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: reading changes nothing.
    pub async fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        self.core.journal(&policy, key, User::Task).await
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// Why it does not, in one sentence.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn ping(&self) -> Result<()> {
        self.core.ping(User::Task).await
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

    /// What was counted since the limiter was made. It needs no store. A forked child starts at zero.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Reads the changed policy file. It is taken as a whole or not at all. Policies that were given in code stay.
    ///
    /// # Errors
    /// Then nothing has changed: `policy_invalid` with file, line and column; `config_invalid` when the file names another
    /// store, or lacks a policy that is in use ([`AsyncLimiter::use_policy`]).
    pub fn reload(&self) -> Result<()> {
        self.core.reload()
    }

    /// Registers that something uses a policy: while the `PolicyUse` exists, [`AsyncLimiter::reload`] refuses a file without a
    /// policy of that name, and names `by` in its error. A notation or a [`Policy`] needs no file: then the use says nothing.
    ///
    /// # Errors
    /// As [`AsyncLimiter::policy`].
    pub fn use_policy(&self, policy: impl AsPolicy, by: &str) -> Result<PolicyUse> {
        self.core.use_policy(policy.as_policy(), by)
    }

    /// A number that is another one after each reload: what was derived from a policy before is derived anew then.
    #[must_use]
    pub fn policy_generation(&self) -> u64 {
        self.core.policies.generation()
    }

    /// Closes the limiter; every later call fails with `closed`. Holds are given back when they are dropped, or by their ttl.
    pub fn close(&self) {
        self.core.close();
    }
}
