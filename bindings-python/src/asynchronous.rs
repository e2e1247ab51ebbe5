//! `AsyncLimiter`. The same calls as `Limiter`, awaitable; a test holds the two together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use tidegate::host::{Call, Outcome};
use tidegate::{CheckOptions, HoldAnswer, Result};

use crate::clock::ManualClock;
use crate::convert::{OwnedPolicy, PolicyArgument, cost, entries, key, length, meta, patience, utf8};
use crate::counters::counters;
use crate::decision::Decision;
use crate::error::{raise, raise_about, stays};
use crate::inbox::Want;
use crate::limiter::{Limiter, decorator};
use crate::options::Options;
use crate::pending::Pending;
use crate::policy::Policy;
use crate::reading::Reading;

/// Checks limits from event loops without blocking them: what waits at the same moment travels to Redis as one call.
///
/// The options are those of Limiter. It may be shared by event loops of several threads, and made before a fork::
///
///     limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": "20/minute; 5/3s"})
///     if not await limiter.check("login", "alice"):
///         ...
///
/// A call is made when it is awaited. Whoever cancels one that is on its way does not learn whether it was charged.
#[pyclass(module = "tidegate", frozen, weakref)]
pub(crate) struct AsyncLimiter {
    pub(crate) reading: Arc<Reading>,
}

impl AsyncLimiter {
    #[inline]
    fn pending(&self, policy: &Bound<'_, PyAny>, key: Bound<'_, PyString>, call: Call) -> PyResult<Pending> {
        // Wrong arguments are told where they were written, not where the call is awaited.
        PolicyArgument::of(policy)?;
        Ok(Pending::call(self, policy, key, call))
    }

    /// A task of the core about one policy and key.
    fn work<F>(
        &self,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        want: Want,
        must_end: bool,
        work: impl FnOnce(tidegate::AsyncLimiter, OwnedPolicy, String) -> F + Send + 'static,
    ) -> PyResult<Pending>
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let (policy, key) = (PolicyArgument::of(policy)?.into(), utf8(key)?.to_owned());
        Ok(Pending::work(want, must_end, work(self.reading.limiter.clone(), policy, key)))
    }
}

#[pymethods]
impl AsyncLimiter {
    #[new]
    #[pyo3(signature = (
        store: "str | Iterable[str] | Rollout | None" = None, *, policies: "Mapping[str, Any] | None" = None,
        prefix: "str" = "tg", timeout: "float" = 0.25, on_store_error: "str" = "local", deny_cache: "float" = 1.0,
        clock: "ManualClock | None" = None
    ))]
    fn new(
        store: Option<Bound<'_, PyAny>>,
        policies: Option<Bound<'_, PyAny>>,
        prefix: &str,
        timeout: f64,
        on_store_error: &str,
        deny_cache: f64,
        clock: Option<Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let clock = clock.as_ref();
        let options = Options { store: store.as_ref(), prefix, timeout, on_store_error, deny_cache, clock };
        Ok(Self { reading: Reading::new(options.policies(policies.as_ref())?.build_async().map_err(raise)?) })
    }

    /// The limiter a policy file describes: YAML, TOML or JSON. `store` is used instead of the file's.
    #[classmethod]
    #[pyo3(signature = (
        path: "str | PathLike[str]", store: "str | Iterable[str] | Rollout | None" = None, *, prefix: "str" = "tg",
        timeout: "float" = 0.25, on_store_error: "str" = "local", deny_cache: "float" = 1.0,
        clock: "ManualClock | None" = None
    ) -> "AsyncLimiter")]
    #[expect(clippy::too_many_arguments, reason = "the options of the promise")]
    fn from_file(
        _class: &Bound<'_, PyType>,
        path: PathBuf,
        store: Option<Bound<'_, PyAny>>,
        prefix: &str,
        timeout: f64,
        on_store_error: &str,
        deny_cache: f64,
        clock: Option<Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let clock = clock.as_ref();
        let options = Options { store: store.as_ref(), prefix, timeout, on_store_error, deny_cache, clock };
        Ok(Self { reading: Reading::new(options.file(&path)?.build_async().map_err(raise)?) })
    }

    /// Asks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a Policy.
    ///
    /// `meta` (str or bytes) is what the journal remembers of it. A denial is a Decision, never an error.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None
    ) -> "Coroutine[Any, Any, Decision]")]
    fn check(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<Pending> {
        self.pending(&policy, key, Call::Check(CheckOptions { cost, meta }))
    }

    /// Asks without consuming.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Coroutine[Any, Any, Decision]")]
    fn peek(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Pending> {
        self.pending(&policy, key, Call::Peek(cost))
    }

    /// Consumes even past the limit: windows count it, buckets go into debt, `remaining` says 0.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int") -> "Coroutine[Any, Any, Decision]")]
    fn charge(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Pending> {
        self.pending(&policy, key, Call::Charge(cost))
    }

    /// Gives units back; never above full, never creates credit.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Coroutine[Any, Any, None]")]
    fn refund(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Pending> {
        self.pending(&policy, key, Call::Refund(cost))
    }

    /// After the work: charges or refunds the difference between what a check consumed and what it should have.
    #[pyo3(signature = (decision: "Decision", actual_cost: "int") -> "Coroutine[Any, Any, None]")]
    fn settle(&self, decision: Bound<'_, Decision>, #[pyo3(from_py_with = cost)] actual_cost: u64) -> Pending {
        let (limiter, decision) = (self.reading.limiter.clone(), decision.get().inner.clone());
        // What was begun must end: with several entries a cancelled one would leave half of them settled.
        Pending::work(Want::Nothing, true, async move {
            limiter.settle(&decision, actual_cost).await.map(|()| Outcome::Nothing)
        })
    }

    /// Checks several policies and keys, each (policy, key) or (policy, key, cost): all are charged, or none is.
    ///
    /// The Decision is the first refusal's, and has one for each entry in `decisions`.
    #[pyo3(signature = (
        entries: "Iterable[tuple[str | Policy | int, ...]]"
    ) -> "Coroutine[Any, Any, Decision]")]
    fn check_all(&self, entries: Bound<'_, PyAny>) -> PyResult<Pending> {
        let (limiter, entries) = (self.reading.limiter.clone(), self::entries(&entries)?);
        Ok(Pending::work(Want::Decision, true, async move { limiter.check_all(entries).await.map(Outcome::Decision) }))
    }

    /// Waits until it is admitted, at most `timeout` seconds; a denied Decision when that would be too late.
    ///
    /// Those who wait for the same key are admitted in the order they came; whoever is cancelled leaves the line.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, timeout: "float | None" = None
    ) -> "Coroutine[Any, Any, Decision]")]
    fn acquire(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = patience)] timeout: Option<Duration>,
    ) -> PyResult<Pending> {
        self.work(&policy, &key, Want::Decision, false, move |limiter, policy, key| async move {
            limiter.acquire(policy, &key, cost, timeout).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a "concurrency" limit: renewed while the AsyncHold lives, given back by `release` or at the end of
    /// `async with`. Raises RateLimited when there is no room::
    ///
    ///     async with limiter.hold("exports", "alice") as hold:
    ///         ...
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Holding")]
    fn hold<'py>(
        &self,
        py: Python<'py>,
        policy: Bound<'py, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'py, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A hold that was asked for comes, also to one who was cancelled meanwhile: then it is given back at once.
        let pending = self.work(&policy, &key, Want::Hold, true, move |limiter, policy, key| async move {
            Ok(match limiter.hold(policy, &key, cost).await? {
                HoldAnswer::Held(hold) => Outcome::Hold(hold),
                HoldAnswer::Denied(decision) => Outcome::Decision(decision),
            })
        })?;
        py.import("tidegate._hold")?.getattr("Holding")?.call1((pending,))
    }

    /// Denies the key for so many seconds (or "10m"), whatever its usage.
    #[pyo3(signature = (policy: "str | Policy", key: "str", seconds: "float | str") -> "Coroutine[Any, Any, None]")]
    fn block(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = length)] seconds: Duration,
    ) -> PyResult<Pending> {
        self.work(&policy, &key, Want::Nothing, true, move |limiter, policy, key| async move {
            limiter.block(policy, &key, seconds).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, None]")]
    fn unblock(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<Pending> {
        self.work(&policy, &key, Want::Nothing, true, |limiter, policy, key| async move {
            limiter.unblock(policy, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets a key's usage and ends its block. Its journal stays.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, None]")]
    fn clear(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<Pending> {
        self.work(&policy, &key, Want::Nothing, true, |limiter, policy, key| async move {
            limiter.clear(policy, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, list[Attempt]]")]
    fn journal(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<Pending> {
        self.work(&policy, &key, Want::Attempts, true, |limiter, policy, key| async move {
            limiter.journal(policy, &key).await.map(Outcome::Attempts)
        })
    }

    /// How many of this limiter's callers wait for a key in `acquire`. Not awaitable: it asks nobody.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "int")]
    fn waiting(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<usize> {
        Ok(self.reading.limiter.waiting(PolicyArgument::of(&policy)?, utf8(&key)?))
    }

    /// Returns when the store answers; raises StoreError, which says why, when it does not.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn ping(&self) -> Pending {
        let limiter = self.reading.limiter.clone();
        Pending::work(Want::Nothing, true, async move { limiter.ping().await.map(|()| Outcome::Nothing) })
    }

    /// Takes the changed policy file, as a whole or not at all.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn reload(&self) -> Pending {
        let limiter = self.reading.limiter.clone();
        // Not begun on the loop's thread: it reads a file.
        Pending::work(Want::Nothing, false, async move { limiter.reload().map(|()| Outcome::Nothing) })
    }

    /// Ends the limiter; every later call raises ClosedError.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn close(&self) -> Pending {
        let limiter = self.reading.limiter.clone();
        Pending::work(Want::Nothing, true, async move {
            limiter.close();
            Ok(Outcome::Nothing)
        })
    }

    /// Changes which share of the keys uses the new store of a `rollout`, in percent; at once. Not awaitable: it asks nobody.
    #[pyo3(signature = (percent: "float") -> "None")]
    fn set_rollout(&self, percent: f64) -> PyResult<()> {
        self.reading.limiter.set_rollout(percent).map_err(raise)
    }

    /// How often what happened, for metrics: `asked` (operations sent to a shared store), `deny_cache` (denials repeated
    /// without asking), `fallback_open`, `fallback_closed`, `fallback_local`, `lost` (how often a store was given up),
    /// `withheld` (not sent meanwhile), `store_unavailable`, `store_timeout`, `store_rejected`. Not awaitable: it asks nobody.
    #[pyo3(signature = () -> "dict[str, int]")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters(py, &self.reading.limiter.counters())
    }

    /// The policy that a name or a notation means to this limiter now. Not awaitable: it asks nobody.
    #[pyo3(signature = (policy: "str | Policy") -> "Policy")]
    fn policy(&self, policy: Bound<'_, PyAny>) -> PyResult<Policy> {
        let policy = PolicyArgument::of(&policy)?;
        let known = self.reading.limiter.policy(policy).map_err(|error| raise_about(error, policy.text()))?;
        Ok(Policy { inner: known })
    }

    /// The same limiter for threads: policies, usage and connections are shared.
    #[pyo3(signature = () -> "Limiter")]
    fn to_blocking(&self) -> Limiter {
        Limiter { inner: self.reading.limiter.to_blocking(), reading: Arc::clone(&self.reading) }
    }

    /// A decorator: a call of the function is a check, and raises RateLimited when that is denied.
    ///
    /// `key` is a function of the call's arguments, or one text for all of them; `cost` a number (1 when nothing is said)
    /// or such a function. A function that is not async is limited on the thread that calls it::
    ///
    ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
    ///     async def send_mail(user, text): ...
    ///
    /// A policy with a "concurrency" limit is held while the function runs. What a leaky-bucket lets in goes when it is
    /// its turn.
    #[pyo3(signature = (
        policy: "str | Policy", *, key: "str | Callable[..., str]", cost: "int | Callable[..., int] | None" = None
    ) -> "Decorator")]
    fn limit<'py>(
        slf: Bound<'py, Self>,
        policy: Bound<'py, PyAny>,
        key: Bound<'py, PyAny>,
        cost: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        decorator(slf.into_any(), &policy, &key, cost)
    }

    #[pyo3(signature = () -> "Coroutine[Any, Any, AsyncLimiter]")]
    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::answered(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_error: "object") -> "Coroutine[Any, Any, None]")]
    fn __aexit__(&self, _error: &Bound<'_, PyTuple>) -> Pending {
        self.close()
    }

    #[pyo3(signature = () -> "NoReturn")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(stays("AsyncLimiter", "make one in each process, or before a fork"))
    }

    fn __repr__(&self) -> String {
        format!("<AsyncLimiter {}>", self.reading.limiter.to_blocking().described())
    }
}
