//! `Limiter` and `AsyncLimiter`. Each can make the other: both share policies, usage and connections.

mod asynchronous;
mod blocking;
mod interruptible;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use tidegate::Result;
use tidegate::host::{Call, Outcome};

use crate::call_coroutine::CallCoroutine;
use crate::convert::utf8;
use crate::decision::Decision;
use crate::error::raise_about;
use crate::loop_completions::ConvertOutcome;
use crate::loop_reader::LoopReader;
use crate::policy_argument::{OwnedPolicy, PolicyArgument};

/// Checks limits on the calling thread.
///
/// - `store`: where usage lives: "memory://" (the default), a Redis URL, a list of URLs that share the keys, or a `rollout`.
/// - `policies`: by name; a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
/// - `prefix`: what every key in Redis begins with; "tg" by default.
/// - `key_secret`: at least 16 bytes for the digests in the names of Redis keys, so that a copy of the data does not tell whether
///   a key that was guessed, such as an address, was used. All limiters that share limits need the same one.
/// - `timeout`: the longest time that a call may wait for the store, in seconds; 0.25 by default.
/// - `on_store_error`: the answer to a check when the store fails: "raise", "open", "closed" or "local" (the default).
/// - `deny_cache`: for how many seconds a denied key may be denied without asking the store; 1.0 by default, 0 is off.
/// - `on_change`: called with a StoreChange when a store is lost, refuses or is back, on a thread of its own.
/// - `clock`: a ManualClock, for tests.
///
/// It may be shared by threads, and made before a fork::
///
///     limiter = Limiter(policies={"login": "20/minute; 5/3s"})
///     if not limiter.check("login", "alice"):
///         ...
#[pyclass(module = "tidegate", frozen, weakref)]
pub(crate) struct Limiter {
    pub(crate) inner: tidegate::Limiter,
    reader: Arc<LoopReader>,
}

/// Checks limits from event loops without blocking them. Checks that wait at the same moment travel to Redis as one call.
///
/// The options are those of Limiter. It may be shared by event loops of several threads, and made before a fork::
///
///     limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": "20/minute; 5/3s"})
///     if not await limiter.check("login", "alice"):
///         ...
///
/// A call is made when it is awaited. If it is cancelled in flight, it is not known whether it was charged.
#[pyclass(module = "tidegate", frozen, weakref)]
pub(crate) struct AsyncLimiter {
    pub(crate) reader: Arc<LoopReader>,
}

impl Limiter {
    fn new_from(inner: tidegate::Limiter) -> Self {
        Self { reader: LoopReader::new(inner.to_async()), inner }
    }

    fn to_async_limiter(&self) -> AsyncLimiter {
        AsyncLimiter { reader: Arc::clone(&self.reader) }
    }

    #[inline]
    fn decide(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        call: &Call,
    ) -> PyResult<Decision> {
        self.call(py, PolicyArgument::of(policy)?, utf8(key)?, call)
    }

    /// Makes a call that one Decision answers. Other threads have the interpreter while it waits.
    #[inline]
    pub(crate) fn call(
        &self,
        py: Python<'_>,
        policy: PolicyArgument<'_>,
        key: &str,
        call: &Call,
    ) -> PyResult<Decision> {
        let answer = match self.inner.try_immediate(policy, key, call) {
            Some(answer) => answer,
            None => py.detach(|| self.inner.call(policy, key, call)),
        };
        answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))
    }

    /// Makes any other call about one policy and key.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        run: impl FnOnce(&tidegate::Limiter, PolicyArgument<'_>, &str) -> tidegate::Result<T> + Send,
    ) -> PyResult<T> {
        let (policy, key) = (PolicyArgument::of(policy)?, utf8(key)?);
        let result = self.detached(py, || run(&self.inner, policy, key));
        result.map_err(|error| raise_about(error, policy.text()))
    }

    /// Runs something that may wait for a store: then other threads have the interpreter meanwhile.
    fn detached<T: Send>(&self, py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
        if self.inner.waits() { py.detach(run) } else { run() }
    }
}

impl AsyncLimiter {
    fn new_from(inner: tidegate::AsyncLimiter) -> Self {
        Self { reader: LoopReader::new(inner) }
    }

    fn to_blocking_limiter(&self) -> Limiter {
        Limiter { inner: self.reader.limiter.to_blocking(), reader: Arc::clone(&self.reader) }
    }

    /// A task of the core about one policy and key.
    fn task<F>(
        &self,
        policy: &Bound<'_, PyAny>,
        key: &Bound<'_, PyString>,
        convert: ConvertOutcome,
        must_finish: bool,
        task: impl FnOnce(tidegate::AsyncLimiter, OwnedPolicy, String) -> F + Send + 'static,
    ) -> PyResult<CallCoroutine>
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let (policy, key) = (PolicyArgument::of(policy)?.into(), utf8(key)?.to_owned());
        Ok(CallCoroutine::of_task(convert, must_finish, task(self.reader.limiter.clone(), policy, key)))
    }
}

/// The decorator `limit` of both limiters, which is written in Python.
fn decorator<'py>(
    limiter: Bound<'py, PyAny>,
    policy: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    cost: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let limit = limiter.py().import("tidegate._decorator")?.getattr("limit")?;
    limit.call1((limiter, policy, key, cost))
}
