//! The limiter for threads.

use std::path::Path;
use std::time::Duration;

use super::Limiter;
use super::builder::Builder;
use super::call::{Call, gone, on_this_thread};
use super::caller::User;
use super::check_all::CheckEntry;
use super::hold::HoldAnswer;
use super::cost::valid_cost;
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
use crate::store::call_context::Waits;
use crate::store::request::Attempt;

impl Limiter {
    /// The options of a new limiter.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The limiter that a policy file describes.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column; `config_invalid` for its store.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Builder::from_file(path)?.build()
    }

    #[inline]
    fn consume(&self, policy: &impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.core.check(policy, key, cost, Waits::Here).unwrap_or_else(|| Err(gone()))
    }

    /// The policy that a name or a notation means to this limiter now.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `closed`.
    pub fn policy(&self, policy: impl AsPolicy) -> Result<Policy> {
        Ok(self.core.plan(&policy, "")?.policy.clone())
    }

    /// Asks and consumes one unit, in one atomic step.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid`, `closed`, the errors of the store, and `config_invalid` for a policy
    /// with a `concurrency` limit, which is for `hold`. A denial is no error.
    #[inline]
    pub fn check(&self, policy: impl AsPolicy, key: &str) -> Result<Decision> {
        self.consume(&policy, key, 1)
    }

    /// Asks and consumes `cost` units.
    ///
    /// # Errors
    /// As [`Limiter::check`], and `cost_invalid`.
    #[inline]
    pub fn check_n(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.consume(&policy, key, valid_cost(cost)?)
    }

    /// Asks and consumes, with all options.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for metadata that is too long, and for a partial check of a policy that
    /// has a `concurrency` or a `leaky-bucket` limit.
    pub fn check_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        self.call(policy, key, &Call::Check(options.clone()))
    }

    /// Asks without consuming.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn peek(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(policy, key, &Call::Peek(cost.into()))
    }

    /// Consumes even past the limit: windows count it, buckets go into debt.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn charge(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(policy, key, &Call::Charge(cost.into()))
    }

    /// Gives units back, the oldest first where the algorithm can tell them; never above full, never creates credit. Where
    /// there is a Decision, settle it instead: that gives back what is still counted of its own charge.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn refund(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        self.call(policy, key, &Call::Refund(cost.into()))
    }

    /// After the work: charges or refunds the difference between the units that a check consumed and the actual cost.
    /// What goes back is what is still counted of its own charge. A Decision and its copies are settled once, in the process
    /// that got it, by its limiter or one of the same store and prefix. After an error it may be settled again only where
    /// [`Error::did_not_run`](crate::Error::did_not_run) says that nothing was done; otherwise the estimate stays charged.
    ///
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// After [`Limiter::check_all`] the number is for the entries with a cost other than 1, or for all where every cost is 1.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for a Decision that was settled or is another limiter's.
    pub fn settle(&self, decision: &Decision, actual: impl Into<Cost>) -> Result<()> {
        on_this_thread(self.core.settle(decision, ActualCosts::One(&actual.into()), User::Thread))
    }

    /// Settles each entry of a [`Limiter::check_all`] with a number of its own; `None` leaves an entry as it is.
    ///
    /// # Errors
    /// As [`Limiter::settle`], and `cost_invalid` for another number of numbers than of entries.
    pub fn settle_each(&self, decision: &Decision, actual: &[Option<impl Into<Cost> + Clone>]) -> Result<()> {
        on_this_thread(self.core.settle(decision, ActualCosts::Each(&actual_costs(actual)), User::Thread))
    }

    /// Checks several policies and keys, each with a cost or with [`CheckOptions`]: all are charged, or none is.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for no entries or more than 256.
    pub fn check_all(&self, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<Decision> {
        on_this_thread(self.core.check_all(entries, User::Thread))
    }

    /// Waits until it is admitted, at most that long (`None`: without a deadline). The Decision is a denial when it cannot be
    /// admitted in time, or when too many callers wait already. Callers that wait for the same key are admitted in the order
    /// they came.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn acquire(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>, timeout: Option<Duration>) -> Result<Decision> {
        self.acquire_with(policy, key, &cost.into().into(), timeout)
    }

    /// As [`Limiter::acquire`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    pub fn acquire_with(
        &self,
        policy: impl AsPolicy,
        key: &str,
        options: &CheckOptions,
        timeout: Option<Duration>,
    ) -> Result<Decision> {
        on_this_thread(self.core.acquire(&policy, key, options, timeout, User::Thread))
    }

    /// How many callers of this limiter wait for a key in `acquire`; 0 for an unknown policy.
    pub fn waiting(&self, policy: impl AsPolicy, key: &str) -> usize {
        self.core.waiting(&policy, key).unwrap_or(0)
    }

    /// Takes units of a `concurrency` limit; they are renewed until the hold is dropped, and given back then.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for a policy without a `concurrency` limit. A policy that is full is no
    /// error: the answer has the denied Decision.
    pub fn hold(&self, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<HoldAnswer> {
        self.hold_with(policy, key, &cost.into().into())
    }

    /// As [`Limiter::hold`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    pub fn hold_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        on_this_thread(self.core.hold(&policy, key, options, User::Thread))
    }

    /// Denies the key for that long, regardless of its usage.
    ///
    /// # Errors
    /// As [`Limiter::check`], and `config_invalid` for no time or more than 10 years.
    pub fn block(&self, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        self.call(policy, key, &Call::Block(length)).map(drop)
    }

    /// Ends a block.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn unblock(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(policy, key, &Call::Unblock).map(drop)
    }

    /// Forgets a key's usage and ends its block. Its journal stays.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn clear(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(policy, key, &Call::Clear).map(drop)
    }

    /// Forgets the usage of all policies and keys, all blocks and all journals: everything that is stored under the prefix of
    /// this limiter. On Redis each primary is walked through in small steps, so the call takes as long as there are keys; each
    /// step has the timeout of a call. Other processes may repeat a denial for as long as their deny cache does.
    ///
    /// # Errors
    /// `closed`, and the errors of the store: then some keys may be left.
    pub fn clear_all(&self) -> Result<()> {
        on_this_thread(self.core.clear_all(User::Thread))
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        on_this_thread(self.core.journal(&policy, key, User::Thread))
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// Why it does not, in one sentence.
    pub fn ping(&self) -> Result<()> {
        on_this_thread(self.core.ping(User::Thread))
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
    /// store, or lacks a policy that is in use ([`Limiter::use_policy`]).
    pub fn reload(&self) -> Result<()> {
        self.core.reload()
    }

    /// Registers that something uses a policy: while the `PolicyUse` exists, [`Limiter::reload`] refuses a file without a
    /// policy of that name, and names `by` in its error. A notation or a [`Policy`] needs no file: then the use says nothing.
    ///
    /// # Errors
    /// As [`Limiter::policy`].
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
