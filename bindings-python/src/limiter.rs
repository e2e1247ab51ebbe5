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
/// - `store`: where usage lives: "memory://" (the default), a file ("file:///path/to/limits"), a Redis URL, a list of URLs that share the keys, or a `rollout`.
/// - `policies`: by name; a notation such as "20/minute; 5/3s", a Policy, or a dict as in a policy file.
/// - `prefix`: what every key in Redis begins with; "tg" by default.
/// - `key_secret`: at least 16 bytes for the digests in the names of Redis keys, so that a copy of the data does not tell whether
///   a key that was guessed, such as an address, was used. All limiters that share limits need the same one.
/// - `timeout`: the longest time that a call may wait for the store, in seconds; 0.25 by default.
/// - `on_store_error`: the answer to a check when the store fails: "raise", "open", "closed" or "local" (the default).
/// - `deny_cache`: for how many seconds a denied key may be denied without asking the store; 1.0 by default, 0 is off.
/// - `on_change`: called with a StoreChange when a store is lost, refuses or is back, on a thread of its own.
/// - `on_near_limit`: called with a NearLimit before a key reaches a limit, once for each policy, key and window, on a thread of its own.
/// - `near_limit`: the part of a limit from which on it is near. By default it is 0.8.
/// - `watch`: for `from_file`, after how many seconds the file is read again to find a change. By default it is 0, which never looks.
/// - `clock`: a ManualClock, for tests.
/// - `log_refusals`: True logs each refusal to the logger "tidegate", at most ten a second.
///
/// For type checkers it may name its policies: `limiter: Limiter[Literal["free", "pro"]] = Limiter(policies={…})` takes no other
/// names. A notation is then given as a Policy.
///
/// It may be shared by threads, and made before a fork::
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
/// The options are those of Limiter. It may be shared by event loops of several threads, and made before a fork::
///
///     limiter = AsyncLimiter("redis://127.0.0.1:6379/0", policies={"login": "20/minute; 5/3s"})
///     if not await limiter.check("login", "alice"):
///         ...
///
/// A call is made when it is awaited. If it is cancelled in flight, it is not known whether it was charged.
#[pyclass(module = "tidegate", frozen, weakref, generic)]
pub(crate) struct AsyncLimiter {
    pub(crate) reader: Arc<LoopReader>,
}
