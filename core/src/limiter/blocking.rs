//! The limiter for threads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Acquire, AcquireStep};
use super::builder::Builder;
use super::call::Call;
use super::check_all::CheckEntry;
use super::hold::{Hold, HoldAnswer};
use super::operations::{CheckOptions, give_nothing_back, valid_cost, whole_operation};
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

/// Checks limits on the calling thread. Cheap to clone; clones are the same limiter.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder().policy("login", "20/minute; 5/3s")?.build()?;
/// for _ in 0..5 {
///     assert!(limiter.check("login", "alice")?.allowed());
/// }
/// let denied = limiter.check("login", "alice")?;
/// assert!(!denied.allowed());
/// assert_eq!((denied.limit(), denied.remaining()), (5, 0));
/// assert!(limiter.check("login", "bob")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) core: Arc<LimiterCore>,
}

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
    fn answer(&self, plan: &Arc<Plan>, key: &str, operation: Operation) -> Result<Answer> {
        self.core.store.ask(&Entry { plan, key, operation }, self.core.context())
    }

    /// Makes a call.
    pub(crate) fn call(&self, policy: &(impl AsPolicy + ?Sized), key: &str, call: &Call) -> Result<Decision> {
        let (plan, operation) = self.core.planned(policy, key, call)?;
        self.run(plan, key, operation)
    }

    #[inline]
    fn run(&self, plan: Arc<Plan>, key: &str, operation: Operation) -> Result<Decision> {
        let entry = Entry { plan: &plan, key, operation };
        let answer = self.core.store.ask(&entry, self.core.context());
        let Entry { operation, .. } = entry;
        self.core.answers.decided(plan, key, &operation, answer)
    }

    /// A plain check. Entry and answer move as little as can be: to copy what was just written stalls the CPU.
    #[inline]
    fn consume(&self, policy: &(impl AsPolicy + ?Sized), key: &str, cost: u64) -> Result<Decision> {
        let (plan, decided_key) = (self.core.plan(policy, key)?, compact_str::CompactString::from(key));
        give_nothing_back("check", &plan)?;
        let entry = Entry { plan: &plan, key, operation: Operation::Check { cost, hold: 0, meta: None } };
        let answer = self.core.store.ask(&entry, self.core.context());
        drop(entry);
        self.core.answers.count(&plan, key, &answer);
        answer.map(|answer| Decision::new(self.core.id, plan, decided_key, cost, answer))
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
        self.call(&policy, key, &Call::Check(options.clone()))
    }

    /// Asks without consuming.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn peek(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Peek(cost))
    }

    /// Consumes even past the limit: windows count it, buckets go into debt.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn charge(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Charge(cost))
    }

    /// Gives units back, the oldest first where the algorithm can tell them; never above full, never creates credit. Where
    /// there is a Decision, settle it instead: that gives back what is still counted of its own charge.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn refund(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(&policy, key, &Call::Refund(cost))
    }

    /// After the work: charges or refunds the difference between the units that a check consumed and the actual cost.
    /// What goes back is what is still counted of its own charge. A Decision and its copies are settled once, in the process
    /// that got it, by its limiter or one of the same store and prefix. After an error it may be settled again only where
    /// [`Error::did_not_run`](crate::Error::did_not_run) says that nothing was done; otherwise the estimate stays charged.
    ///
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// Of a [`Limiter::check_all`] the number is for the entries with a cost other than 1, or for all where every cost is 1.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for a Decision that was settled or is another limiter's.
    pub fn settle(&self, decision: &Decision, actual: u64) -> Result<()> {
        self.settle_entries(decision, ActualCosts::One(actual))
    }

    /// Settles each entry of a [`Limiter::check_all`] with a number of its own; `None` leaves an entry as it is.
    ///
    /// # Errors
    /// As [`Limiter::settle`], and `cost_invalid` for another number of numbers than of entries.
    pub fn settle_each(&self, decision: &Decision, actual: &[Option<u64>]) -> Result<()> {
        self.settle_entries(decision, ActualCosts::Each(actual))
    }

    fn settle_entries(&self, decision: &Decision, actual: ActualCosts<'_>) -> Result<()> {
        let mut settling = Settling::begin(&self.core, decision, actual)?;
        while let Some((decision, plan, operation)) = settling.next(&self.core) {
            settling.settled(self.run(plan, decision.key(), operation))?;
        }
        Ok(())
    }

    /// Checks several policies and keys, each with a cost or with [`CheckOptions`]: all are charged, or none is.
    ///
    /// # Errors
    /// As [`Limiter::check_n`], and `config_invalid` for no entries or more than 256.
    pub fn check_all(&self, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<Decision> {
        let entries = check_all::resolved(&self.core, entries)?;
        let answers = self.core.store.ask_all(&check_all::borrowed(&entries), self.core.context())?;
        check_all::decided_all(&self.core, entries, answers)
    }

    /// Waits until it is admitted, at most that long (`None`: without a deadline). The Decision is a denial when it cannot be
    /// admitted in time, or when too many callers wait already. Callers that wait for the same key are admitted in the order
    /// they came.
    ///
    /// # Errors
    /// As [`Limiter::check_n`].
    pub fn acquire(&self, policy: impl AsPolicy, key: &str, cost: u64, timeout: Option<Duration>) -> Result<Decision> {
        self.acquire_with(policy, key, &CheckOptions::of_cost(cost), timeout)
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
        let plan = self.core.plan(&policy, key)?;
        let operation = whole_operation("acquire", options, &plan, 0)?;
        let mut acquire = Acquire::begin(&self.core, &plan, key, &operation, timeout)?;
        loop {
            match acquire.step()? {
                AcquireStep::Ask(operation) => {
                    if let Some(decision) = acquire.answered(self.answer(&plan, key, operation)?) {
                        return Ok(decision);
                    }
                }
                AcquireStep::Sleep { signal, count, longest } => signal.wait(count, longest),
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
    /// As [`Limiter::check_n`], and `config_invalid` for a policy without a `concurrency` limit. A policy that is full is no
    /// error: the answer has the denied Decision.
    pub fn hold(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<HoldAnswer> {
        self.hold_with(policy, key, &CheckOptions::of_cost(cost))
    }

    /// As [`Limiter::hold`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    pub fn hold_with(&self, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        let plan = self.core.plan(&policy, key)?;
        let id = self.core.hold_id();
        let operation = whole_operation("hold", options, &plan, id)?;
        let began = self.core.hold_renewer.time(&self.core);
        let decision = self.run(plan, key, operation)?;
        if !decision.allowed() {
            return Ok(HoldAnswer::Denied(decision));
        }
        Ok(HoldAnswer::Held(Hold::new(&self.core, id, decision, began, true)))
    }

    /// Denies the key for that long, regardless of its usage.
    ///
    /// # Errors
    /// As [`Limiter::check`], and `config_invalid` for no time or more than 10 years.
    pub fn block(&self, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        self.call(&policy, key, &Call::Block(length)).map(drop)
    }

    /// Ends a block.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn unblock(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(&policy, key, &Call::Unblock).map(drop)
    }

    /// Forgets a key's usage and ends its block. Its journal stays.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn clear(&self, policy: impl AsPolicy, key: &str) -> Result<()> {
        self.call(&policy, key, &Call::Clear).map(drop)
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub fn journal(&self, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        let plan = self.core.plan(&policy, key)?;
        if plan.policy.options().journal == 0 {
            return Ok(Vec::new());
        }
        Ok(self.answer(&plan, key, Operation::Journal)?.into_attempts())
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// Why it does not, in one sentence.
    pub fn ping(&self) -> Result<()> {
        self.core.open()?;
        self.core.store.ping(CallContext::default())
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
    /// store, or lacks a policy that is in use ([`Limiter::use_policy`]).
    pub fn reload(&self) -> Result<()> {
        self.core.reload()
    }

    /// Closes the limiter; every later call fails with `closed`. Holds are given back when they are dropped, or by their ttl.
    pub fn close(&self) {
        self.core.close();
    }
}
