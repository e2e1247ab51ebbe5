//! `Limiter` and `AsyncLimiter`. Each can make the other: both share policies, usage and connections.

mod asynchronous;
mod blocking;
mod classes;
mod interruptible;
mod methods;

use std::sync::Arc;

use pyo3::prelude::*;

use crate::loop_reader::LoopReader;

/// Checks limits on the calling thread.
///
/// - `store`: "memory://" (the default), a file ("file:///path/to/limits"), a Redis URL, a list of URLs, or a `rollout`.
/// - `policies`: the policies by name. Each is a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
/// - `prefix`: the beginning of every key in Redis, "tg" by default.
/// - `key_secret`: at least 16 bytes for the digests in the names of Redis keys. With it, a copy of the data does not show if
///   a guessed key, such as an address, was used. All limiters that share limits need the same secret.
/// - `timeout`: the longest time that a call may wait for the store, in seconds, 0.25 by default.
/// - `on_store_error`: the answer to a check when the store fails: "raise", "open", "closed" or "local" (the default).
/// - `deny_cache`: the seconds for which a denial is repeated without a call to the store, 1.0 by default. 0 turns it off.
/// - `on_change`: a function that gets a StoreChange when a store is lost, refuses calls or is back. It runs on a separate thread.
/// - `clock`: a ManualClock, for tests.
/// - `log_refusals`: True logs each refusal to the logger "tidegate", at most ten a second.
///
/// For type checkers you can name the policies: `limiter: Limiter[Literal["free", "pro"]] = Limiter(policies={…})` takes no other
/// names. Give a notation as a Policy then.
///
/// Threads may share it, and you may make it before a fork::
///
///     limiter = Limiter(policies={"login": "20/minute; 5/3s"})
///     if not limiter.check("login", "alice"):
///         ...
#[pyclass(module = "tidegate", frozen, weakref, generic)]
pub(crate) struct Limiter {
    pub(crate) inner: tidegate::Limiter,
    reader: Arc<LoopReader>,
}

/// Checks limits from event loops without blocking them. Checks that wait at the same moment travel to Redis as one call.
///
/// The options are those of Limiter. Event loops of several threads may share it, and you may make it before a fork::
///
///     limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": "20/minute; 5/3s"})
///     if not await limiter.check("login", "alice"):
///         ...
///
/// A call is made when you await it. If you cancel it in flight, it may or may not have been charged.
#[pyclass(module = "tidegate", frozen, weakref, generic)]
pub(crate) struct AsyncLimiter {
    pub(crate) reader: Arc<LoopReader>,
}
