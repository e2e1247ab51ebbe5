//! The stores of usage: in this process, in a file of the machine, in Redis, in PostgreSQL, or a store of your own. All give the same answers.
//!
//! For a store of your own, implement `KeyValueStore` and run `verify`.

// The layers around a shared store (`resilience/`) implement `Store` too.

#[cfg(feature = "redis")]
pub(crate) mod application;
pub(crate) mod batch_guard;
pub(crate) mod call_context;
pub(crate) mod completion;
mod forgotten_denials;
pub(crate) mod key_names;
#[cfg(feature = "redis")]
mod key_value_store;
pub(crate) mod layer_states;
#[cfg(all(unix, feature = "redis"))]
pub(crate) mod machine;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod panics;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
pub(crate) mod redis;
pub(crate) mod request;
#[cfg(feature = "stored")]
pub(crate) mod stored_key;
#[cfg(feature = "redis")]
mod swap;
pub(crate) mod url;
pub(crate) mod usage;
#[cfg(feature = "redis")]
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::plan::Plan;
use crate::process::log::Log;
use call_context::CallContext;
pub(crate) use forgotten_denials::ForgottenDenials;
use key_names::KeyNames;
#[cfg(feature = "redis")]
pub use key_value_store::{
    CallerQueue, DEFAULT_MAX_VALUE, KeyChange as Change, KeyValueStore, StandingValue as Value, StoreAnswer,
    StoreCause as BoxError, StoreFailure, Swapped, WaitingCaller,
};
use layer_states::LayerStates;
use request::{Answer, Entry, SimpleAnswer};
#[cfg(feature = "redis")]
pub use verify::verify;

/// The most entries that one call carries: they occupy a Redis server for about half a millisecond.
pub(crate) const MAX_ENTRIES: usize = 256;

/// Opens a store of the application. Returns it, and if it changes all keys of a call or none.
pub(crate) type OpenStore = Arc<dyn Fn(KeyNames, Duration, Arc<Log>) -> Result<(Arc<dyn Store>, bool)> + Send + Sync>;

/// A place that keeps usage, or a layer around one.
pub(crate) trait Store: Send + Sync {
    /// Answers a check of a simple policy at once, if the store can. Returns true if it did. Otherwise nothing was
    /// done, and [`Store::begin`] is asked. The store writes the answer in place, because a copy would stall the CPU.
    fn try_simple_check(
        &self,
        _plan: &Plan,
        _key: &str,
        _cost: u64,
        _now: Option<u64>,
        _answer: &mut SimpleAnswer,
    ) -> bool {
        false
    }

    /// Begins one operation and returns its answer, unless the context shows that the caller does not wait. Then there
    /// is no answer, or it goes to the completion. The store may send calls that wait at the same moment as one batch.
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>>;

    /// Lets the layers work on an answer that went to a completion. The completion calls this.
    fn finish(
        &self,
        _entry: &Entry<'_>,
        _now: Option<u64>,
        _states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        result
    }

    /// Begins a check of several entries, all or nothing.
    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>>;

    /// As [`Store::finish`].
    fn finish_all(
        &self,
        _entries: &[Entry<'_>],
        _now: Option<u64>,
        _states: &mut LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        result
    }

    /// Checks that the store answers. The caller waits. A deadline can only shorten the timeout of the store.
    fn ping(&self, deadline: Option<Instant>) -> Result<()>;

    /// Forgets everything that is stored under the prefix. The caller waits until all keys are gone.
    fn clear_all(&self) -> Result<()>;

    /// Sets or removes the override of a key. The operation has the change, and the plan the numbers. The caller waits.
    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()>;

    /// The keys of the entry's policy that have an override, in any order. The caller waits.
    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer>;

    /// Fails for a policy whose values the store cannot keep.
    fn accepts(&self, _plan: &Plan) -> Result<()> {
        Ok(())
    }

    /// Closes what is open. Calls that still wait fail with `closed`.
    fn close(&self) {}
}
