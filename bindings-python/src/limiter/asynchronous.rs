//! The calls of `AsyncLimiter`: those of `Limiter`, awaitable. A test compares the two.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use tidegate::host::{Call, Outcome};
use tidegate::{CheckOptions, HoldAnswer};

use super::{AsyncLimiter, Limiter, decorator};
use crate::actual_costs::ActualCosts;
use crate::attempt::Attempt;
use crate::call_coroutine::CallCoroutine;
use crate::convert::{cost, key, length, meta, none_from_outcome, optional_seconds, path, percent, utf8};
use crate::decision::Decision;
use crate::error::{belongs_to_process, raise, raise_about};
use crate::hold::AsyncHold;
use crate::options::LimiterOptions;
use crate::policy::Policy;
use crate::policy_argument::{PolicyArgument, entries, refuse_partial};
use crate::policy_use::PolicyUse;
use crate::stats::{counters, stats};

#[pymethods]
impl AsyncLimiter {
    #[new]
    #[pyo3(signature = (
        store: "str | Iterable[str] | Rollout | None" = None, **options: "Unpack[LimiterOptions]"
    ))]
    fn new(store: Option<Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = LimiterOptions { function: "AsyncLimiter.__new__()", store: store.as_ref(), options };
        options.with_policies()?.build_async().map(Self::new_from).map_err(raise)
    }

    /// The limiter that a policy file describes: YAML, TOML or JSON. `store` replaces that of the file.
    ///
    /// Its policies are those of the file and of `policies`. The other options are those of the class.
    #[classmethod]
    #[pyo3(signature = (
        path: "str | PathLike[str]", store: "str | Iterable[str] | Rollout | None" = None,
        **options: "Unpack[LimiterOptions]"
    ) -> "AsyncLimiter")]
    fn from_file(
        _class: &Bound<'_, PyType>,
        #[pyo3(from_py_with = path)] path: PathBuf,
        store: Option<Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = LimiterOptions { function: "AsyncLimiter.from_file()", store: store.as_ref(), options };
        options.with_file(&path)?.build_async().map(Self::new_from).map_err(raise)
    }

    /// Checks whether `cost` units are admitted and consumes them, in one atomic step. The policy is a name, a notation or a
    /// Policy.
    ///
    /// The journal remembers `meta` (str or bytes). A denial is a Decision, never an error. With `partial` the check takes as
    /// many units as there are, up to `cost`; `granted` says how many.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None, partial: "bool" = false
    ) -> "Coroutine[Any, Any, Decision]")]
    fn check(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
        partial: bool,
    ) -> PyResult<CallCoroutine> {
        let call = Call::Check(CheckOptions { cost, meta, partial });
        CallCoroutine::of_call(&self.reader, &policy, key, call, Decision::from_outcome)
    }

    /// The same as a check that consumes nothing.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Coroutine[Any, Any, Decision]")]
    fn peek(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<CallCoroutine> {
        CallCoroutine::of_call(&self.reader, &policy, key, Call::Peek(cost), Decision::from_outcome)
    }

    /// Consumes even beyond the limit: windows count it, buckets go into debt, `remaining` is 0.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int") -> "Coroutine[Any, Any, Decision]")]
    fn charge(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<CallCoroutine> {
        CallCoroutine::of_call(&self.reader, &policy, key, Call::Charge(cost), Decision::from_outcome)
    }

    /// Gives units back, at most what is used.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Coroutine[Any, Any, None]")]
    fn refund(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<CallCoroutine> {
        CallCoroutine::of_call(&self.reader, &policy, key, Call::Refund(cost), none_from_outcome)
    }

    /// After the work: charges or refunds the difference between what a check consumed and the actual cost. Once.
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// Of a `check_all` one number is for the entries with a cost other than 1, or for all. A list has one for each entry, a dict
    /// for the policies that it names; None leaves an entry as it is.
    #[pyo3(signature = (
        decision: "Decision", actual_cost: "int | Sequence[int | None] | Mapping[str, int | None]"
    ) -> "Coroutine[Any, Any, None]")]
    fn settle(&self, decision: Bound<'_, Decision>, actual_cost: Bound<'_, PyAny>) -> PyResult<CallCoroutine> {
        let (limiter, decision) = (self.reader.limiter.clone(), decision.get().inner.clone());
        let actual = ActualCosts::of(&decision, &actual_cost)?;
        // It must finish: if it were cancelled, only some of several entries might be settled.
        Ok(CallCoroutine::of_action(true, async move { actual.settle_awaited(&limiter, &decision).await }))
    }

    /// Checks several policies and keys, each (policy, key), (policy, key, cost) or (policy, key, cost, meta): all are charged, or none is.
    ///
    /// The Decision has the fields of the first denial, if there is one, and in `decisions` a Decision for each entry.
    /// `partial` is refused: all or nothing is no part.
    #[pyo3(signature = (
        entries: "Iterable[tuple[str | Policy | int | bytes | None, ...]]", *, partial: "bool" = false
    ) -> "Coroutine[Any, Any, Decision]")]
    fn check_all(&self, entries: Bound<'_, PyAny>, partial: bool) -> PyResult<CallCoroutine> {
        refuse_partial(partial)?;
        let (limiter, entries) = (self.reader.limiter.clone(), self::entries(&entries)?);
        let checked = async move { limiter.check_all(entries).await.map(Outcome::Decision) };
        Ok(CallCoroutine::of_task(Decision::from_outcome, true, checked))
    }

    /// Waits until it is admitted, at most `timeout` seconds. The Decision is a denial when that would be too late.
    ///
    /// Calls that wait for the same key are admitted in their order; a cancelled one leaves the queue.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, timeout: "float | timedelta | None" = None,
        meta: "str | bytes | None" = None
    ) -> "Coroutine[Any, Any, Decision]")]
    fn acquire(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<Duration>,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<CallCoroutine> {
        let options = CheckOptions { cost, meta, ..CheckOptions::default() };
        self.task(&policy, &key, Decision::from_outcome, false, move |limiter, policy, key| async move {
            limiter.acquire_with(policy, &key, &options, timeout).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a "concurrency" limit: renewed while the AsyncHold lives, given back by `release` or at the end of
    /// `async with`. Raises RateLimited when there is no room::
    ///
    ///     async with limiter.hold("exports", "alice") as hold:
    ///         ...
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None) -> "Holding")]
    fn hold<'py>(
        &self,
        py: Python<'py>,
        policy: Bound<'py, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'py, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = CheckOptions { cost, meta, ..CheckOptions::default() };
        // The hold arrives even if the call was cancelled meanwhile: then it is given back at once.
        let pending =
            self.task(&policy, &key, AsyncHold::from_outcome, true, move |limiter, policy, key| async move {
                Ok(match limiter.hold_with(policy, &key, &options).await? {
                    HoldAnswer::Held(hold) => Outcome::Hold(hold),
                    denied => Outcome::Decision(denied.decision().clone()),
                })
            })?;
        py.import("tidegate._hold")?.getattr("Holding")?.call1((pending,))
    }

    /// Denies the key for so many seconds (or "10m"), whatever its usage is.
    #[pyo3(signature = (policy: "str | Policy", key: "str", seconds: "float | str | timedelta") -> "Coroutine[Any, Any, None]")]
    fn block(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = length)] seconds: Duration,
    ) -> PyResult<CallCoroutine> {
        self.task(&policy, &key, none_from_outcome, true, move |limiter, policy, key| async move {
            limiter.block(policy, &key, seconds).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, None]")]
    fn unblock(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<CallCoroutine> {
        self.task(&policy, &key, none_from_outcome, true, |limiter, policy, key| async move {
            limiter.unblock(policy, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets the usage of a key and ends its block. Its journal stays.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, None]")]
    fn clear(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<CallCoroutine> {
        self.task(&policy, &key, none_from_outcome, true, |limiter, policy, key| async move {
            limiter.clear(policy, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts, newest first. The policy needs a `journal`.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "Coroutine[Any, Any, list[Attempt]]")]
    fn journal(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<CallCoroutine> {
        self.task(&policy, &key, Attempt::list_from_outcome, true, |limiter, policy, key| async move {
            limiter.journal(policy, &key).await.map(Outcome::Attempts)
        })
    }

    /// How many calls of `acquire` wait for a key in this limiter. Not awaitable: it needs no store.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "int")]
    fn waiting(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<usize> {
        let policy = PolicyArgument::of(&policy)?;
        self.reader.limiter.try_waiting(policy, utf8(&key)?).map_err(|error| raise_about(error, policy.text()))
    }

    /// Forgets everything that is stored under the prefix: usage, blocks and journals of all policies and keys.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn clear_all(&self) -> CallCoroutine {
        let limiter = self.reader.limiter.clone();
        CallCoroutine::of_action(true, async move { limiter.clear_all().await })
    }

    /// Returns when the store answers. Raises StoreError with the reason when it does not.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn ping(&self) -> CallCoroutine {
        let limiter = self.reader.limiter.clone();
        CallCoroutine::of_action(true, async move { limiter.ping().await })
    }

    /// Reads the policy file again. Takes it as a whole, or raises and changes nothing.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn reload(&self) -> CallCoroutine {
        let limiter = self.reader.limiter.clone();
        // It reads a file, so it does not begin on the loop's thread.
        CallCoroutine::of_action(false, async move { limiter.reload() })
    }

    /// Closes the limiter. Every later call raises ClosedError.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn close(&self) -> CallCoroutine {
        let limiter = self.reader.limiter.clone();
        CallCoroutine::of_action(true, async move {
            limiter.close();
            Ok(())
        })
    }

    /// Changes the share of the keys that use the new store of a `rollout`, in percent, at once. Not awaitable.
    #[pyo3(signature = (percent: "float") -> "None")]
    fn set_rollout(&self, #[pyo3(from_py_with = percent)] percent: f64) -> PyResult<()> {
        self.reader.limiter.set_rollout(percent).map_err(raise)
    }

    /// The `counters` of `stats()` alone. Not awaitable: it needs no store.
    #[pyo3(signature = () -> "dict[str, int]")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters(py, &self.reader.limiter.counters())
    }

    /// What was counted since the limiter was made, as `Limiter.stats`. Not awaitable: it needs no store.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats(py, &self.reader.limiter.stats())
    }

    /// The policy that a name or a notation means now. Not awaitable: it needs no store.
    #[pyo3(signature = (policy: "str | Policy") -> "Policy")]
    fn policy(&self, policy: Bound<'_, PyAny>) -> PyResult<Policy> {
        let policy = PolicyArgument::of(&policy)?;
        let known = self.reader.limiter.policy(policy).map_err(|error| raise_about(error, policy.text()))?;
        Ok(Policy { inner: known })
    }

    /// The same limiter for threads. Policies, usage and connections are shared.
    #[pyo3(signature = () -> "Limiter")]
    fn to_blocking(&self) -> Limiter {
        self.to_blocking_limiter()
    }

    /// A decorator: each call of the function is a check first, and raises RateLimited when that is denied.
    ///
    /// `key` is a function of the call's arguments, or one text for all of them; `cost` a number, 1 by
    /// default, or such a function. A function that is not async is limited on the thread that calls it::
    ///
    ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
    ///     async def send_mail(user, text): ...
    ///
    /// A policy with a "concurrency" limit is held while the function runs. With a leaky-bucket the function runs after the
    /// delay.
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
    fn __aenter__(slf: Bound<'_, Self>) -> CallCoroutine {
        CallCoroutine::answered(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_error: "object") -> "Coroutine[Any, Any, None]")]
    fn __aexit__(&self, _error: &Bound<'_, PyTuple>) -> CallCoroutine {
        self.close()
    }

    /// Registers what uses a policy by its name, as long as the PolicyUse exists; `reload` refuses to drop such a policy.
    #[pyo3(name = "_use_policy", signature = (policy: "str | Policy", by: "str") -> "PolicyUse")]
    fn use_policy(&self, policy: Bound<'_, PyAny>, by: Bound<'_, PyString>) -> PyResult<PolicyUse> {
        PolicyUse::new(&self.reader.limiter.to_blocking(), &policy, &by)
    }

    /// Another number after each `reload`.
    #[getter(_generation)]
    fn generation(&self) -> u64 {
        self.reader.limiter.policy_generation()
    }

    #[pyo3(signature = () -> "NoReturn")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(belongs_to_process("AsyncLimiter", "make one in each process, or before a fork"))
    }

    fn __repr__(&self) -> String {
        format!("<AsyncLimiter {}>", self.reader.limiter.to_blocking().described())
    }
}
