//! The calls of both limiters, declared once: [`Limiter`] makes them on the calling thread, [`AsyncLimiter`] for a task.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use super::actual_costs::ActualCosts;
use super::builder::Builder;
use super::call::{Call, gone, on_this_thread};
use super::check_all::CheckEntry;
use super::cost::Cost;
use super::hold::HoldAnswer;
use super::operations::CheckOptions;
use super::overrides::OverriddenKey;
use super::policy_ref::AsPolicy;
use super::policy_uses::PolicyUse;
use super::{AsyncLimiter, Limiter};
use crate::counting::{Counters, Stats};
use crate::decision::Decision;
use crate::error::Result;
use crate::http::Observation;
use crate::policy::{KeyOverride, Policy};
use crate::process::waits::Waits;
use crate::store::request::Attempt;

impl Limiter {
    const WAITS: Waits = Waits::Here;

    /// The options of a new limiter.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The limiter that a policy file describes.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column, and `config_invalid` for its store.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Builder::from_file(path)?.build()
    }

    #[inline]
    pub(super) fn consume(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.core.check(&policy, key, cost, Waits::Here).unwrap_or_else(|| Err(gone()))
    }

    fn change(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<()> {
        self.call(policy, key, call).map(drop)
    }

    fn wait_for<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        on_this_thread(answer)
    }
}

impl AsyncLimiter {
    const WAITS: Waits = Waits::TASK;

    /// The limiter that a policy file describes.
    ///
    /// # Errors
    /// `policy_invalid` with file, line and column, and `config_invalid` for its store.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Builder::from_file(path)?.build_async()
    }

    pub(super) async fn consume(&self, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        self.call(policy, key, &Call::Plain(cost)).await
    }

    #[doc(hidden)]
    pub async fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        self.core.call_of(&policy, key, call, Self::WAITS).await
    }

    async fn change(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<()> {
        self.call(policy, key, call).await.map(drop)
    }

    fn wait_for<F: Future>(&self, answer: F) -> F {
        answer
    }
}

/// The calls that may wait for the store. Each documents the effect of dropping its future, which only [`AsyncLimiter`] has.
macro_rules! calls {
    ($(
        $(#[$documentation:meta])+
        dropped: $(#[$dropped:meta])+
        fn $name:ident($limiter:ident $(, $argument:ident: $Argument:ty)*) -> $Answer:ty { $answer:expr }
    )+) => {
        impl Limiter {
            $(
                $(#[$documentation])+
                pub fn $name(&self $(, $argument: $Argument)*) -> $Answer {
                    let $limiter = self;
                    $answer
                }
            )+
        }

        impl AsyncLimiter {
            $(
                $(#[$documentation])+
                ///
                /// # Cancel safety
                $(#[$dropped])+
                pub async fn $name(&self $(, $argument: $Argument)*) -> $Answer {
                    let $limiter = self;
                    $answer.await
                }
            )+
        }
    };
}

calls! {
    /// Asks and consumes one unit, in one atomic step.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid`, `closed`, the errors of the store, and `config_invalid` for a
    /// policy with a `concurrency` limit, which needs `hold`. A denial is no error.
    #[inline]
    dropped:
    /// It is charged once it was polled, even if the future is dropped before the answer. A future that was never
    /// polled charges nothing.
    fn check(limiter, policy: impl AsPolicy, key: &str) -> Result<Decision> {
        limiter.consume(policy, key, 1)
    }

    /// Asks and consumes `cost` units.
    ///
    /// # Errors
    /// As [`Self::check`], and `cost_invalid`.
    #[inline]
    dropped:
    /// As [`Self::check`].
    fn check_n(limiter, policy: impl AsPolicy, key: &str, cost: u64) -> Result<Decision> {
        limiter.consume(policy, key, cost)
    }

    /// Asks and consumes, with all options.
    ///
    /// # Errors
    /// As [`Self::check_n`], and `config_invalid` for metadata that is too long, and for a partial check of a policy that
    /// has a `concurrency` or a `leaky-bucket` limit.
    dropped:
    /// As [`Self::check`].
    fn check_with(limiter, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        limiter.call(policy, key, &Call::check(options.clone()))
    }

    /// Asks without consuming.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    dropped:
    /// The future can be dropped at any time, because a peek changes nothing.
    fn peek(limiter, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        limiter.call(policy, key, &Call::peek(cost.into().into()))
    }

    /// Asks without consuming, for a call with units of several names or of a class.
    ///
    /// # Errors
    /// As [`Self::peek`], and `config_invalid` for a class that the policy does not have, and for metadata and a partial check.
    dropped:
    /// As [`Self::peek`].
    fn peek_with(limiter, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<Decision> {
        limiter.call(policy, key, &Call::peek(options.clone()))
    }

    /// Consumes even past the limit. Windows count it, and buckets go into debt.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    dropped:
    /// As [`Self::check`].
    fn charge(limiter, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        limiter.call(policy, key, &Call::Charge(cost.into()))
    }

    /// Gives units back, the oldest first if the algorithm can distinguish them. It never goes above full or creates credit. If
    /// you have a Decision, settle it instead: that gives back only units of its own charge that still count.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    dropped:
    /// The units go back once it was polled, even if the future is dropped before the answer.
    fn refund(limiter, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<Decision> {
        limiter.call(policy, key, &Call::Refund(cost.into()))
    }

    /// Learns the limits of the other side from the response to a call, for every process that uses the key. No
    /// response admits a call earlier. `answered` is the Decision of the call: units that were charged since then are
    /// added to the used units in the response.
    ///
    /// An example on a thread. Each call of an [`AsyncLimiter`] ends with `.await`:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::http::ResponseReader;
    ///
    /// let limiter = tidegate::Limiter::builder().build()?;
    /// let read = ResponseReader::new(Duration::from_secs(1_700_000_000)).read([("RateLimit", r#""api";r=1;t=30"#)], b"");
    /// limiter.observe("100/minute", "https://api.example.com", read.observations, None)?;
    /// assert!(limiter.check("100/minute", "https://api.example.com")?.allowed());
    /// let denied = limiter.check("100/minute", "https://api.example.com")?;
    /// assert!(denied.learned() && denied.retry_after() > Some(Duration::from_secs(29)));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::check`].
    dropped:
    /// It is learned once it was polled, even if the future is dropped before the answer.
    fn observe(limiter, policy: impl AsPolicy, key: &str, observations: Vec<Observation>, answered: Option<&Decision>) -> Result<Decision> {
        limiter.call(policy, key, &Call::observe(observations, answered))
    }

    /// After the work: charges or refunds the difference between the units that a check consumed and the actual cost.
    /// Only units of its own charge that still count go back. A Decision and its copies are settled once, in the
    /// process that got it, by its limiter or one of the same store and prefix. After an error it may be settled again
    /// only if [`Error::did_not_run`](crate::Error::did_not_run) is true. Otherwise the estimate stays charged.
    ///
    /// A peek has consumed nothing, so a settle of its Decision charges the actual cost.
    ///
    /// After [`Self::check_all`] the number is for the entries with a cost other than 1, or for all if every cost is 1.
    ///
    /// # Errors
    /// As [`Self::check_n`], and `config_invalid` for a Decision that was settled or is another limiter's.
    dropped:
    /// Once it was polled the Decision is settled, even if the future is dropped before the answer. With a Decision of
    /// `check_all`, the entries that it had not reached are not settled. Each of [`Decision::decisions`] can be settled alone.
    fn settle(limiter, decision: &Decision, actual: impl Into<Cost>) -> Result<()> {
        limiter.wait_for(limiter.core.settle(decision, ActualCosts::One(actual.into()), Self::WAITS))
    }

    /// Settles each entry of a [`Self::check_all`] with a separate number. `None` leaves an entry as it is.
    ///
    /// # Errors
    /// As [`Self::settle`], and `cost_invalid` unless there are as many numbers as entries.
    dropped:
    /// As [`Self::settle`].
    fn settle_each(limiter, decision: &Decision, actual: &[Option<impl Into<Cost> + Clone>]) -> Result<()> {
        limiter.wait_for(limiter.core.settle(decision, ActualCosts::each(actual), Self::WAITS))
    }

    /// Checks several policies and keys, each alone, with a cost or with [`CheckOptions`]: all are charged, or none is.
    ///
    /// # Errors
    /// As [`Self::check_n`], and `config_invalid` for no entries or more than 256.
    dropped:
    /// Once it was polled all entries are charged, or none is, even if the future is dropped before the answer.
    fn check_all(limiter, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<Decision> {
        limiter.wait_for(limiter.core.check_all(entries, Self::WAITS))
    }

    /// Waits until it is admitted, at most for the timeout (`None`: without a deadline). The Decision is a denial if it
    /// cannot be admitted in time, or if too many callers wait already. Callers that wait for the same key are admitted
    /// in the order they came.
    ///
    /// # Errors
    /// As [`Self::check_n`].
    dropped:
    /// A caller that drops its future leaves the line and asks no more. A question that the store has at that moment is
    /// charged if it is admitted. The store keeps the caller's place in the line of all processes for a second.
    fn acquire(limiter, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>, timeout: Option<Duration>) -> Result<Decision> {
        limiter.acquire_with(policy, key, &cost.into().into(), timeout)
    }

    /// As [`Self::acquire`], with metadata for the journal.
    ///
    /// # Errors
    /// As [`Self::check_with`].
    dropped:
    /// As [`Self::acquire`].
    fn acquire_with(limiter, policy: impl AsPolicy, key: &str, options: &CheckOptions, timeout: Option<Duration>) -> Result<Decision> {
        limiter.wait_for(limiter.core.acquire(&policy, key, options, timeout, Self::WAITS))
    }

    /// Takes units of a `concurrency` limit. They are renewed until the hold is dropped, and given back then.
    ///
    /// # Errors
    /// As [`Self::check_n`], and `config_invalid` for a policy without a `concurrency` limit. A policy that is full is no
    /// error: the answer has the denied Decision.
    dropped:
    /// Units that the store grants after the future was dropped are given back at once, or by their ttl if the store
    /// cannot be reached. The charges of other limits of the policy stay.
    fn hold(limiter, policy: impl AsPolicy, key: &str, cost: impl Into<Cost>) -> Result<HoldAnswer> {
        limiter.hold_with(policy, key, &cost.into().into())
    }

    /// As [`Self::hold`], with metadata for the journal and a class.
    ///
    /// # Errors
    /// As [`Self::check_with`].
    dropped:
    /// As [`Self::hold`].
    fn hold_with(limiter, policy: impl AsPolicy, key: &str, options: &CheckOptions) -> Result<HoldAnswer> {
        limiter.hold_within(policy, key, options, Some(Duration::ZERO))
    }

    /// Waits until there is room for a hold, at most for the timeout. It gives up at once if this would clearly be too late.
    ///
    /// Callers that wait for a key stand in one line over all processes: see [`Self::acquire`].
    ///
    /// # Errors
    /// As [`Self::check_with`].
    dropped:
    /// As [`Self::hold`].
    fn hold_within(limiter, policy: impl AsPolicy, key: &str, options: &CheckOptions, timeout: Option<Duration>) -> Result<HoldAnswer> {
        limiter.wait_for(limiter.core.hold(&policy, key, options, timeout, Self::WAITS))
    }

    /// Denies the key for that long, regardless of its usage.
    ///
    /// # Errors
    /// As [`Self::check`], and `config_invalid` for no time or more than 10 years.
    dropped:
    /// The key is blocked once it was polled, even if the future is dropped before the answer.
    fn block(limiter, policy: impl AsPolicy, key: &str, length: Duration) -> Result<()> {
        limiter.change(policy, key, &Call::Block(length))
    }

    /// Ends a block.
    ///
    /// # Errors
    /// As [`Self::check`].
    dropped:
    /// As [`Self::block`]: the block ends.
    fn unblock(limiter, policy: impl AsPolicy, key: &str) -> Result<()> {
        limiter.change(policy, key, &Call::Unblock)
    }

    /// Forgets a key's usage and ends its block. Its journal stays.
    ///
    /// # Errors
    /// As [`Self::check`].
    dropped:
    /// As [`Self::block`]: the usage is forgotten.
    fn clear(limiter, policy: impl AsPolicy, key: &str) -> Result<()> {
        limiter.change(policy, key, &Call::Clear)
    }

    /// Forgets the usage of all policies and keys, all blocks and all journals: everything that is stored under the prefix of
    /// this limiter. On Redis it walks through each primary in small steps, so the time grows with the number of keys. Each step
    /// has the timeout of a call. Other processes may repeat a denial for as long as their deny cache does.
    ///
    /// # Errors
    /// `closed`, and the errors of the store. After an error of the store some keys may be left.
    dropped:
    /// It goes on once it was polled, even if the future is dropped.
    fn clear_all(limiter) -> Result<()> {
        limiter.wait_for(limiter.core.clear_all(Self::WAITS))
    }

    /// Gives a key an override of its policy's numbers, for `ttl` or, without one, until it is removed. It applies at
    /// once in this process, and within a second in all others. `None` removes it. Usage stays for each limit of the
    /// same algorithm, period and unit. Each call of an [`AsyncLimiter`] ends with `.await`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{KeyOverride, Limiter};
    ///
    /// let limiter = Limiter::builder().policy("api", "100/minute")?.build()?;
    /// let day = Some(Duration::from_secs(86_400));
    /// limiter.set_override("api", "alice", Some(&KeyOverride::parse("1000/minute")?), day)?;
    /// let decision = limiter.check("api", "alice")?;
    /// assert!(decision.overridden() && decision.limit() == 1_000);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::check`], `policy_invalid` for numbers that the policy cannot have or that have no notation, `key_invalid` for a
    /// key of more than 1,024 bytes, and `config_invalid` for a ttl out of range and beyond 10,000 keys of a policy.
    dropped:
    /// As [`Self::block`]: the key has the override.
    fn set_override(limiter, policy: impl AsPolicy, key: &str, own: Option<&KeyOverride>, ttl: Option<Duration>) -> Result<()> {
        limiter.wait_for(limiter.core.set_override(&policy, key, own, ttl, Self::WAITS))
    }

    /// The keys of a policy that have an override by [`Self::set_override`], in the order of the keys. The overrides of
    /// its file are in its [`Options`](crate::Options).
    ///
    /// # Errors
    /// As [`Self::check`].
    dropped:
    /// The future can be dropped at any time, because reading changes nothing.
    fn overrides(limiter, policy: impl AsPolicy) -> Result<Vec<OverriddenKey>> {
        limiter.wait_for(limiter.core.overrides(&policy, Self::WAITS))
    }

    /// The newest attempts, newest first, for a policy with a `journal`.
    ///
    /// # Errors
    /// As [`Self::check`].
    dropped:
    /// The future can be dropped at any time, because reading changes nothing.
    fn journal(limiter, policy: impl AsPolicy, key: &str) -> Result<Vec<Attempt>> {
        limiter.wait_for(limiter.core.journal(&policy, key, Self::WAITS))
    }

    /// Checks that the store answers.
    ///
    /// # Errors
    /// The reason why it does not, in one sentence.
    dropped:
    /// The future can be dropped at any time.
    fn ping(limiter) -> Result<()> {
        limiter.wait_for(limiter.core.ping(Self::WAITS))
    }
}

/// Makes the same methods for both limiters.
macro_rules! both {
    ($($methods:tt)+) => {
        impl Limiter {
            $($methods)+
        }

        impl AsyncLimiter {
            $($methods)+
        }
    };
}

both! {
    /// The policy that a name or a notation means to this limiter now.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `closed`.
    pub fn policy(&self, policy: impl AsPolicy) -> Result<Policy> {
        Ok(self.core.plan(&policy, "")?.policy.clone())
    }

    /// The number of callers of this limiter that wait for a key, in `acquire` or for a hold. 0 for an unknown policy.
    pub fn waiting(&self, policy: impl AsPolicy, key: &str) -> usize {
        self.core.waiting(&policy, key).unwrap_or(0)
    }

    /// True if the other side may refuse calls of a key since one was admitted at `at`, by the time of the store.
    #[doc(hidden)]
    #[must_use]
    pub fn may_be_refused_since(&self, key: &str, at: Duration) -> bool {
        self.core.may_be_refused_since(key, at)
    }

    /// Gives that share of the keys to the new store of a rollout, from the next call on. A larger share has all keys of a
    /// smaller one.
    ///
    /// # Errors
    /// `config_invalid` without a rollout, and for a number that is no percentage.
    pub fn set_rollout(&self, percent: f64) -> Result<()> {
        self.core.set_rollout(percent)
    }

    /// The counters since the limiter was made. For `memory://` only those of forgotten denials, `acquire` and holds count.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// The counts since the limiter was made. Reading them needs no store. A forked child starts at zero.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Reads the changed policy file. It is taken as a whole or not at all. Policies that were given in code stay.
    ///
    /// # Errors
    /// Then nothing has changed: `policy_invalid` with file, line and column, and `config_invalid` if the file names
    /// another store, or lacks a policy that is in use ([`Self::use_policy`]).
    pub fn reload(&self) -> Result<()> {
        self.core.reload()
    }

    /// Registers a use of a policy. While the `PolicyUse` exists, [`Self::reload`] refuses a file without a policy of
    /// that name, and names `by` in its error. A notation or a [`Policy`] needs no file, so its use has no effect.
    ///
    /// # Errors
    /// As [`Self::policy`].
    pub fn use_policy(&self, policy: impl AsPolicy, by: &str) -> Result<PolicyUse> {
        self.core.use_policy(policy.as_policy(), by)
    }

    /// A number that changes with each reload, so that values derived from a policy can be derived anew then.
    #[must_use]
    pub fn policy_generation(&self) -> u64 {
        self.core.policies.generation()
    }

    /// Closes the limiter. Calls end with `closed`, waiting ones first. Then turns, [holds](crate::Hold::lost) and leases go back.
    pub fn close(&self) {
        self.core.close();
    }
}
