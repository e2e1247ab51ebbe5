//! `Limiter`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use tidegate::host::{Call, CompletionQueue, HostLimiter, Outcome, Wake, post_task};
use tidegate::{CheckOptions, HoldAnswer};

use crate::asynchronous::AsyncLimiter;
use crate::clock::ManualClock;
use crate::convert::{PolicyArgument, cost, entries, key, length, meta, patience, utf8};
use crate::counters::counters;
use crate::decision::Decision;
use crate::error::{ClosedError, RateLimited, raise, raise_about, stays};
use crate::hold::Hold;
use crate::inbox::attempts_list;
use crate::options::Options;
use crate::policy::Policy;
use crate::reading::Reading;

/// How often a waiting main thread looks whether Ctrl-C was pressed.
const GLANCE: Duration = Duration::from_millis(100);

/// Checks limits on the calling thread.
///
/// store: where usage lives: "memory://", which is meant when nothing is said, a Redis URL, a list of
/// them that share the keys, or a `rollout`.
/// policies: by name; a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
/// prefix: what every key in Redis begins with.
/// timeout: the longest a call may wait for the store, in seconds.
/// on_store_error: "raise", "open", "closed" or "local": what a check answers when the store fails.
/// deny_cache: for how many seconds a denied key may be denied without asking the store; 0 is off.
/// clock: a ManualClock, for tests.
///
/// It may be shared by threads, and made before a fork::
///
///     limiter = Limiter(policies={"login": "20/minute; 5/3s"})
///     if not limiter.check("login", "alice"):
///         ...
#[pyclass(module = "tidegate", frozen, weakref)]
pub(crate) struct Limiter {
    pub(crate) inner: tidegate::Limiter,
    pub(crate) reading: Arc<Reading>,
}

impl Limiter {
    #[inline]
    fn decide(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        call: &Call,
    ) -> PyResult<Decision> {
        self.ask(py, PolicyArgument::of(policy)?, utf8(key)?, call)
    }

    #[inline]
    pub(crate) fn ask(&self, py: Python<'_>, policy: PolicyArgument<'_>, key: &str, call: &Call) -> PyResult<Decision> {
        let answer = match self.inner.try_immediate(policy, key, call) {
            Some(answer) => answer,
            None => py.detach(|| self.inner.call(policy, key, call)),
        };
        answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))
    }

    /// Does something without the interpreter's lock where it may have to wait.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        run: impl FnOnce(&tidegate::Limiter, PolicyArgument<'_>, &str) -> tidegate::Result<T> + Send,
    ) -> PyResult<T> {
        let (policy, key) = (PolicyArgument::of(policy)?, utf8(key)?);
        let done = self.wait(py, || run(&self.inner, policy, key));
        done.map_err(|error| raise_about(error, policy.text()))
    }

    fn wait<T: Send>(&self, py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
        if self.inner.waits() { py.detach(run) } else { run() }
    }
}

/// What a decorator's arguments are checked with, and what it is made of, is written in Python.
pub(crate) fn decorator<'py>(
    limiter: Bound<'py, PyAny>,
    policy: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    cost: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let make = limiter.py().import("tidegate._decorator")?.getattr("limit")?;
    make.call1((limiter, policy, key, cost))
}

/// Tells a thread that waits.
struct Bell(Mutex<Sender<tidegate::Result<Outcome>>>);

impl Wake for Bell {
    fn wake(&self) {}
}

impl CompletionQueue for Bell {
    fn deliver(&self, _: u64, outcome: tidegate::Result<Outcome>) {
        // Whoever does not listen any more was interrupted.
        drop(self.0.lock().send(outcome));
    }
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (
        store: "str | Iterable[str] | Rollout | None" = None, *, policies: "Mapping[str, Any] | None" = None,
        prefix: "str" = "tg", timeout: "float" = 0.25, on_store_error: "str" = "local",
        deny_cache: "float" = 1.0, clock: "ManualClock | None" = None
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
        let inner = options.policies(policies.as_ref())?.build().map_err(raise)?;
        Ok(Self { reading: Reading::new(inner.to_async()), inner })
    }

    /// The limiter a policy file describes: YAML, TOML or JSON. `store` is used instead of the file's.
    #[classmethod]
    #[pyo3(signature = (
        path: "str | PathLike[str]", store: "str | Iterable[str] | Rollout | None" = None, *, prefix: "str" = "tg",
        timeout: "float" = 0.25, on_store_error: "str" = "local",
        deny_cache: "float" = 1.0, clock: "ManualClock | None" = None
    ) -> "Limiter")]
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
        let inner = options.file(&path)?.build().map_err(raise)?;
        Ok(Self { reading: Reading::new(inner.to_async()), inner })
    }

    /// Asks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a Policy.
    ///
    /// `meta` (str or bytes) is what the journal remembers of it. A denial is a Decision, never an error.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, meta: "str | bytes | None" = None
    ) -> "Decision")]
    fn check(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
    ) -> PyResult<Decision> {
        self.decide(py, &policy, &key, &Call::Check(CheckOptions { cost, meta }))
    }

    /// Asks without consuming.
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

    /// Consumes even past the limit: windows count it, buckets go into debt, `remaining` says 0.
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

    /// Gives units back; never above full, never creates credit.
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

    /// After the work: charges or refunds the difference between what a check consumed and what it should have.
    #[pyo3(signature = (decision: "Decision", actual_cost: "int") -> "None")]
    fn settle(
        &self,
        py: Python<'_>,
        decision: Bound<'_, Decision>,
        #[pyo3(from_py_with = cost)] actual_cost: u64,
    ) -> PyResult<()> {
        let decision = &decision.get().inner;
        self.wait(py, || self.inner.settle(decision, actual_cost)).map_err(raise)
    }

    /// Checks several policies and keys, each (policy, key) or (policy, key, cost): all are charged, or none is.
    ///
    /// The Decision is the first refusal's, and has one for each entry in `decisions`.
    #[pyo3(signature = (entries: "Iterable[tuple[str | Policy | int, ...]]") -> "Decision")]
    fn check_all(&self, py: Python<'_>, entries: Bound<'_, PyAny>) -> PyResult<Decision> {
        let entries = self::entries(&entries)?;
        self.wait(py, || self.inner.check_all(entries)).map(Decision::from).map_err(raise)
    }

    /// Waits until it is admitted, at most `timeout` seconds; a denied Decision when that would be too late.
    ///
    /// Those who wait for the same key are admitted in the order they came.
    #[pyo3(signature = (
        policy: "str | Policy", key: "str", cost: "int" = 1, timeout: "float | None" = None
    ) -> "Decision")]
    fn acquire(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
        #[pyo3(from_py_with = patience)] timeout: Option<Duration>,
    ) -> PyResult<Decision> {
        let (policy, key) = (PolicyArgument::of(&policy)?, utf8(&key)?);
        let told = |error| raise_about(error, policy.text());
        let threading = py.import("threading")?;
        let here = threading.call_method0("current_thread")?;
        if timeout.is_some_and(|timeout| timeout <= GLANCE) || !here.is(&threading.call_method0("main_thread")?) {
            let waited = py.detach(|| self.inner.acquire(policy, key, cost, timeout));
            return waited.map(Decision::from).map_err(told);
        }
        // Signals are handled on this thread only, between two looks: so it must not be the one that waits.
        let (sender, outcome) = channel();
        // Only this thread uses it; the lock is what says so to the compiler.
        let outcome = Mutex::new(outcome);
        let bell: Arc<dyn CompletionQueue> = Arc::new(Bell(Mutex::new(sender)));
        let (limiter, policy, key) = (self.inner.to_async(), crate::convert::OwnedPolicy::from(policy), key.to_owned());
        let task =
            post_task(
                0,
                &bell,
                async move { limiter.acquire(policy, &key, cost, timeout).await.map(Outcome::Decision) },
            );
        let task = task.map_err(told)?;
        loop {
            match py.detach(|| outcome.lock().recv_timeout(GLANCE)) {
                Ok(Ok(Outcome::Decision(decision))) => return Ok(decision.into()),
                Ok(Err(error)) => return Err(told(error)),
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Err(ClosedError::new_err(("the limiter ended while somebody waited",))),
            }
            if let Err(interrupted) = py.check_signals() {
                task.cancel();
                return Err(interrupted);
            }
        }
    }

    /// Takes units of a "concurrency" limit: renewed while the Hold lives, given back by `release` or at the end of
    /// `with`. Raises RateLimited when there is no room.
    #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int" = 1) -> "Hold")]
    fn hold(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
        #[pyo3(from_py_with = cost)] cost: u64,
    ) -> PyResult<Hold> {
        match self.run(py, &policy, &key, |limiter, policy, key| limiter.hold(policy, key, cost))? {
            HoldAnswer::Held(hold) => Hold::new(py, hold),
            HoldAnswer::Denied(decision) => Err(RateLimited::new_err((Py::new(py, Decision::from(decision))?,))),
        }
    }

    /// Denies the key for so many seconds (or "10m"), whatever its usage.
    #[pyo3(signature = (policy: "str | Policy", key: "str", seconds: "float | str") -> "None")]
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

    /// Forgets a key's usage and ends its block. Its journal stays.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "None")]
    fn clear(
        &self,
        py: Python<'_>,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<()> {
        self.run(py, &policy, &key, |limiter, policy, key| limiter.clear(policy, key))
    }

    /// The newest attempts, newest first, of a policy with a `journal`.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "list[Attempt]")]
    fn journal<'py>(
        &self,
        py: Python<'py>,
        policy: Bound<'py, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, pyo3::types::PyList>> {
        attempts_list(py, self.run(py, &policy, &key, |limiter, policy, key| limiter.journal(policy, key))?)
    }

    /// How many of this limiter's callers wait for a key in `acquire`.
    #[pyo3(signature = (policy: "str | Policy", key: "str") -> "int")]
    fn waiting(
        &self,
        policy: Bound<'_, PyAny>,
        #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    ) -> PyResult<usize> {
        Ok(self.inner.waiting(PolicyArgument::of(&policy)?, utf8(&key)?))
    }

    /// Returns when the store answers; raises StoreError, which says why, when it does not.
    #[pyo3(signature = () -> "None")]
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, || self.inner.ping()).map_err(raise)
    }

    /// Takes the changed policy file, as a whole or not at all.
    #[pyo3(signature = () -> "None")]
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.reload()).map_err(raise)
    }

    /// Ends the limiter; every later call raises ClosedError.
    #[pyo3(signature = () -> "None")]
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    /// Changes which share of the keys uses the new store of a `rollout`, in percent; at once.
    #[pyo3(signature = (percent: "float") -> "None")]
    fn set_rollout(&self, percent: f64) -> PyResult<()> {
        self.inner.set_rollout(percent).map_err(raise)
    }

    /// How often what happened, for metrics: `asked` (operations sent to a shared store), `deny_cache` (denials repeated
    /// without asking), `fallback_open`, `fallback_closed`, `fallback_local`, `lost` (how often a store was given up),
    /// `withheld` (not sent meanwhile), `store_unavailable`, `store_timeout`, `store_rejected`.
    #[pyo3(signature = () -> "dict[str, int]")]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters(py, &self.inner.counters())
    }

    /// The policy that a name or a notation means to this limiter now.
    #[pyo3(signature = (policy: "str | Policy") -> "Policy")]
    fn policy(&self, policy: Bound<'_, PyAny>) -> PyResult<Policy> {
        let policy = PolicyArgument::of(&policy)?;
        let known = self.inner.policy(policy).map_err(|error| raise_about(error, policy.text()))?;
        Ok(Policy { inner: known })
    }

    /// The same limiter for event loops: policies, usage and connections are shared.
    #[pyo3(signature = () -> "AsyncLimiter")]
    fn to_async(&self) -> AsyncLimiter {
        AsyncLimiter { reading: Arc::clone(&self.reading) }
    }

    /// A decorator: a call of the function is a check, and raises RateLimited when that is denied.
    ///
    /// `key` is a function of the call's arguments, or one text for all of them; `cost` a number (1 when nothing is said) or such
    /// a function. An async function is limited without blocking its event loop::
    ///
    ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
    ///     def send_mail(user, text): ...
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

    #[pyo3(signature = () -> "Limiter")]
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error: "object") -> "None")]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    #[pyo3(signature = () -> "NoReturn")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(stays("Limiter", "make one in each process, or before a fork"))
    }

    fn __repr__(&self) -> String {
        format!("<Limiter {}>", self.inner.described())
    }
}
