//! The calls of `Limiter`.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use tidegate::host::Call;
use tidegate::{CheckOptions, HoldAnswer};

use super::{AsyncLimiter, Limiter, decorator, interruptible};
use crate::actual_costs::ActualCosts;
use crate::attempt::Attempt;
use crate::convert::{cost, key, length, meta, optional_seconds, path, percent, utf8};
use crate::decision::Decision;
use crate::error::{RateLimited, belongs_to_process, raise, raise_about};
use crate::hold::Hold;
use crate::options::LimiterOptions;
use crate::policy::Policy;
use crate::policy_argument::{PolicyArgument, entries, refuse_partial};
use crate::policy_use::PolicyUse;
use crate::stats::{counters, stats};

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (
        store: "str | Iterable[str] | Rollout | None" = None, **options: "Unpack[LimiterOptions]"
    ))]
    fn new(store: Option<Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = LimiterOptions { function: "Limiter.__new__()", store: store.as_ref(), options };
        options.with_policies()?.build().map(Self::new_from).map_err(raise)
    }

    /// The limiter that a policy file describes: YAML, TOML or JSON. `store` replaces that of the file.
    ///
    /// Its policies are those of the file and of `policies`. The other options are those of the class.
    #[classmethod]
    #[pyo3(signature = (
        path: "str | PathLike[str]", store: "str | Iterable[str] | Rollout | None" = None,
        **options: "Unpack[LimiterOptions]"
    ) -> "Limiter")]
    fn from_file(
        _class: &Bound<'_, PyType>,
        #[pyo3(from_py_with = path)] path: PathBuf,
        store: Option<Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = LimiterOptions { function: "Limiter.from_file()", store: store.as_ref(), options };
        options.with_file(&path)?.build().map(Self::new_from).map_err(raise)
    }

    /// Checks whether `cost` units are admitted and consumes them, in one atomic step. The policy is a name, a notation or a
    /// Policy.
    ///
    /// The journal remembers `meta` (str or bytes). A denial is a Decision, never an error. With `partial` the check takes as
    /// many units as there are, up to `cost`; `granted` says how many.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None, partial: "bool" = false
    ) -> "Decision")]
    fn check(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
        partial: bool,
    ) -> PyResult<Decision> {
        self.decide(py, &policy, &key, &Call::Check(CheckOptions { cost, meta, partial }))
    }

    /// The same as a check that consumes nothing.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Decision")]
    fn peek(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Decision> {
        self.decide(py, &policy, &key, &Call::Peek(cost))
    }

    /// Consumes even beyond the limit: windows count it, buckets go into debt, `remaining` is 0.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int") -> "Decision")]
    fn charge(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Decision> {
        self.decide(py, &policy, &key, &Call::Charge(cost))
    }

    /// Gives units back, at most what is used.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "None")]
    fn refund(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<()> {
        self.decide(py, &policy, &key, &Call::Refund(cost)).map(drop)
    }

    /// After the work: charges or refunds the difference between what a check consumed and the actual cost. Once.
    /// A peek has consumed nothing: a settle of its Decision charges the actual cost.
    ///
    /// Of a `check_all` one number is for the entries with a cost other than 1, or for all. A list has one for each entry, a dict
    /// for the policies that it names; None leaves an entry as it is.
    #[pyo3(signature = (
        decision: "Decision", actual_cost: "int | Sequence[int | None] | Mapping[str, int | None]"
    ) -> "None")]
    fn settle(&self, py: Python<'_>, decision: Bound<'_, Decision>, actual_cost: Bound<'_, PyAny>) -> PyResult<()> {
        let decision = &decision.get().inner;
        let actual = ActualCosts::of(decision, &actual_cost)?;
        self.detached(py, || actual.settle(&self.inner, decision)).map_err(raise)
    }

    /// Checks several policies and keys, each (policy, key), (policy, key, cost) or (policy, key, cost, meta): all are charged, or none is.
    ///
    /// The Decision has the fields of the first denial, if there is one, and in `decisions` a Decision for each entry.
    /// `partial` is refused: all or nothing is no part.
    #[pyo3(signature = (
        entries: "Iterable[tuple[str | Policy | int | bytes | None, ...]]", *, partial: "bool" = false
    ) -> "Decision")]
    fn check_all(&self, py: Python<'_>, entries: Bound<'_, PyAny>, partial: bool) -> PyResult<Decision> {
        refuse_partial(partial)?;
        let entries = self::entries(&entries)?;
        self.detached(py, || self.inner.check_all(entries)).map(Decision::from).map_err(raise)
    }

    /// Waits until it is admitted, at most `timeout` seconds. The Decision is a denial when that would be too late.
    ///
    /// Calls that wait for the same key are admitted in their order.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, timeout: "float | timedelta | None" = None,
        meta: "str | bytes | None" = None
    ) -> "Decision")]
    fn acquire(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<Duration>,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<Decision> {
        let options = CheckOptions { cost, meta, ..CheckOptions::default() };
        let (policy, key) = (PolicyArgument::of(&policy)?, utf8(&key)?);
        interruptible::acquire(py, &self.inner, policy, key, options, timeout).map(Decision::from)
    }

    /// Takes units of a "concurrency" limit: renewed while the Hold lives, given back by `release` or at the end of
    /// `with`. Raises RateLimited when there is no room.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None) -> "Hold")]
    fn hold(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<Hold> {
        let options = CheckOptions { cost, meta, ..CheckOptions::default() };
        let (policy, key) = (PolicyArgument::of(&policy)?, utf8(&key)?);
        match interruptible::hold(py, &self.inner, policy, key, options)? {
            HoldAnswer::Held(hold) => Hold::new(py, hold),
            denied => Err(RateLimited::new_err((Py::new(py, Decision::from(denied.decision().clone()))?,))),
        }
    }

    /// Denies the key for so many seconds (or "10m"), whatever its usage is.
    #[pyo3(signature = (policy: "str | Policy", key: "str", seconds: "float | str | timedelta") -> "None")]
    fn block(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = length)] seconds: Duration,
    ) -> PyResult<()> {
        self.run(py, &policy, &key, |limiter, policy, key| limiter.block(policy, key, seconds))
    }

    /// Ends a block.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "None")]
    fn unblock(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<()> {
        self.run(py, &policy, &key, |limiter, policy, key| limiter.unblock(policy, key))
    }

    /// Forgets the usage of a key and ends its block. Its journal stays.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "None")]
    fn clear(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<()> {
        self.run(py, &policy, &key, |limiter, policy, key| limiter.clear(policy, key))
    }

    /// The newest attempts, newest first. The policy needs a `journal`.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "list[Attempt]")]
    fn journal<'py>(
        &self,
        py: Python<'py>,
        policy: Bound<'py, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyList>> {
        Attempt::list(py, self.run(py, &policy, &key, |limiter, policy, key| limiter.journal(policy, key))?)
    }

    /// How many calls of `acquire` wait for a key in this limiter.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "int")]
    fn waiting(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<usize> {
        let policy = PolicyArgument::of(&policy)?;
        self.inner.try_waiting(policy, utf8(&key)?).map_err(|error| raise_about(error, policy.text()))
    }

    /// Forgets everything that is stored under the prefix: usage, blocks and journals of all policies and keys.
    #[pyo3(signature = () -> "None")]
    fn clear_all(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, || self.inner.clear_all()).map_err(raise)
    }

    /// Returns when the store answers. Raises StoreError with the reason when it does not.
    #[pyo3(signature = () -> "None")]
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, || self.inner.ping()).map_err(raise)
    }

    /// Reads the policy file again. Takes it as a whole, or raises and changes nothing.
    #[pyo3(signature = () -> "None")]
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.reload()).map_err(raise)
    }

    /// Closes the limiter. Every later call raises ClosedError.
    #[pyo3(signature = () -> "None")]
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    /// Changes the share of the keys that use the new store of a `rollout`, in percent, at once.
    #[pyo3(signature = (percent: "float") -> "None")]
    fn set_rollout(&self, #[pyo3(from_py_with = percent)] percent: f64) -> PyResult<()> {
        self.inner.set_rollout(percent).map_err(raise)
    }

    /// The `counters` of `stats()` alone: events of stores, leases, fallbacks and holds.
    #[pyo3(signature = () -> "dict[str, int]")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters(py, &self.inner.counters())
    }

    /// What was counted since the limiter was made or its process was forked, without any key: `policies` by name, calls to
    /// the `store`, its `breaker`, and `counters`. JSON can hold it; docs/metrics.md explains each number.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats(py, &self.inner.stats())
    }

    /// The policy that a name or a notation means now.
    #[pyo3(signature = (policy: "str | Policy") -> "Policy")]
    fn policy(&self, policy: Bound<'_, PyAny>) -> PyResult<Policy> {
        let policy = PolicyArgument::of(&policy)?;
        let known = self.inner.policy(policy).map_err(|error| raise_about(error, policy.text()))?;
        Ok(Policy { inner: known })
    }

    /// The same limiter for event loops. Policies, usage and connections are shared.
    #[pyo3(signature = () -> "AsyncLimiter")]
    fn to_async(&self) -> AsyncLimiter {
        self.to_async_limiter()
    }

    /// A decorator: each call of the function is a check first, and raises RateLimited when that is denied.
    ///
    /// `key` is a function of the call's arguments, or one text for all of them; `cost` a number, 1 by
    /// default, or such a function. An async function is limited without blocking its event loop::
    ///
    ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
    ///     def send_mail(user, text): ...
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

    #[pyo3(signature = () -> "Limiter")]
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error: "object") -> "None")]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Registers what uses a policy by its name, as long as the PolicyUse exists; `reload` refuses to drop such a policy.
    #[pyo3(name = "_use_policy", signature = (policy: "str | Policy", by: "str") -> "PolicyUse")]
    fn use_policy(&self, policy: Bound<'_, PyAny>, by: Bound<'_, PyString>) -> PyResult<PolicyUse> {
        PolicyUse::new(&self.inner, &policy, &by)
    }

    /// Another number after each `reload`.
    #[getter(_generation)]
    fn generation(&self) -> u64 {
        self.inner.policy_generation()
    }

    #[pyo3(signature = () -> "NoReturn")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(belongs_to_process("Limiter", "make one in each process, or before a fork"))
    }

    fn __repr__(&self) -> String {
        format!("<Limiter {}>", self.inner.described())
    }
}
