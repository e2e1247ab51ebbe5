//! Where usage lives: in this process, or in Redis. Both give the same answers.
//!
//! The layers around a shared store (`resilience/`) implement [`Store`] too.

pub(crate) mod batch_guard;
pub(crate) mod call_context;
pub(crate) mod completion;
mod forgotten_denials;
pub(crate) mod key_names;
pub(crate) mod layer_states;
#[cfg(all(unix, feature = "redis"))]
pub(crate) mod machine;
pub(crate) mod memory;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
pub(crate) mod redis;
pub(crate) mod request;
#[cfg(feature = "stored")]
pub(crate) mod stored_key;
pub(crate) mod url;
pub(crate) mod usage;

use std::time::Instant;

use crate::error::Result;
use crate::plan::Plan;
use call_context::CallContext;
pub(crate) use forgotten_denials::ForgottenDenials;
use layer_states::LayerStates;
use request::{Answer, Entry, SimpleAnswer};

/// The most entries that one call carries: they occupy a Redis server for about half a millisecond.
pub(crate) const MAX_ENTRIES: usize = 256;

/// Where usage lives, or a layer around that.
pub(crate) trait Store: Send + Sync {
    /// Answers a check of a policy that is simple, where the store does so at once and without anything beside; returns whether it did.
    /// Otherwise nothing was done: [`Store::begin`] is asked. The answer is written where it stays, since a copy would stall the CPU.
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

    /// Begins one operation. Its answer is returned, unless its caller does not wait for it, as the context says: then there is
    /// none, or it goes to the completion. Calls that wait at the same moment may be sent as one batch.
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>>;

    /// What the layers make of an answer that went to a completion, which calls this.
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

    /// Whether the store answers, and if not, why; the caller waits. A deadline can only shorten the timeout of the store.
    fn ping(&self, deadline: Option<Instant>) -> Result<()>;

    /// Forgets everything that is stored under the prefix. The caller waits as long as there are keys.
    fn clear_all(&self) -> Result<()>;

    /// Gives a key other numbers, or those of its policy again; the caller waits. The operation of the entry says which, and its plan has them.
    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()>;

    /// The keys of the policy of an entry that have other numbers, in any order; the caller waits.
    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer>;

    /// Closes what is open; calls that wait are answered with `closed`.
    fn close(&self) {}
}
