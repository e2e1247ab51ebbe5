//! Where usage lives: in this process, or in Redis. Both give the same answers.
//!
//! The layers around a shared store (`resilience/`) implement [`Store`] too.

pub(crate) mod batch_guard;
pub(crate) mod call_context;
pub(crate) mod completion;
pub(crate) mod key_names;
pub(crate) mod layer_states;
pub(crate) mod memory;
#[cfg_attr(not(feature = "redis"), path = "without_redis.rs")]
pub(crate) mod redis;
pub(crate) mod request;
pub(crate) mod url;

use std::sync::Arc;

use crate::error::Result;
use call_context::CallContext;
use completion::{BatchCompletion, MakeCompletion, PingCompletion, WakeTarget};
use layer_states::LayerStates;
use request::{Answer, Entry, OwnedEntry};

/// The most entries that one call carries: they occupy a Redis server for about half a millisecond.
pub(crate) const MAX_ENTRIES: usize = 256;

/// Where usage lives, or a layer around that.
pub(crate) trait Store: Send + Sync {
    /// Does one operation on the calling thread.
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer>;

    /// Checks several entries, all or nothing, on the calling thread.
    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>>;

    /// Does one operation without waiting. An answer that needs no waiting is returned; any other goes to the completion
    /// that `make` makes. Calls that wait at the same moment may be sent as one batch.
    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>>;

    /// What the layers make of an answer to a call that had to wait. Its completion calls this.
    fn after(
        &self,
        _entry: &Entry<'_>,
        _now: Option<u64>,
        _states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        result
    }

    /// Checks several entries, all or nothing, without waiting.
    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion);

    /// Whether the store answers, and if not, why. A deadline can only shorten the timeout of the store.
    fn ping(&self, context: CallContext<'_>) -> Result<()>;

    /// Finds out whether the store answers, without waiting.
    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion);

    /// Forgets everything that is stored under the prefix. It takes as long as there are keys.
    fn clear_all(&self) -> Result<()>;

    /// Forgets everything under the prefix, without waiting.
    fn submit_clear_all(&self, done: PingCompletion);

    /// Closes what is open; calls that wait are answered with `closed`.
    fn close(&self);

    /// The answer, if it needs no waiting; without one nothing was done.
    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>>;
}

/// Does one operation without waiting: an answer that needs no waiting is returned, any other goes to the callback that
/// `make` makes. Everything that is kept of the call meanwhile is in one box.
pub(crate) fn submit<T>(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    context: CallContext<'_>,
    make: impl FnOnce() -> T,
) -> Option<Result<Answer>>
where
    T: FnOnce(OwnedEntry, Result<Answer>) -> WakeTarget + Send + 'static,
{
    let (mut make, now) = (Some(make), context.now);
    store.submit(entry, context, &mut LayerStates::default(), &mut |mut states| {
        let (layers, owned, callback) = (Arc::clone(store), OwnedEntry::from(entry), make.take().map(|make| make()));
        Box::new(move |result| {
            let result = layers.after(&owned.entry(), now, &mut states, result);
            callback.and_then(|callback| callback(owned, result))
        })
    })
}

/// The same for a callback that is called in any case, also with an answer that needs no waiting.
pub(crate) fn submit_then(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    context: CallContext<'_>,
    callback: impl FnOnce(Result<Answer>) -> WakeTarget + Send + 'static,
) -> WakeTarget {
    let mut callback = Some(callback);
    let immediate = submit(store, entry, context, || {
        let callback = callback.take();
        move |_, result| callback.and_then(|callback| callback(result))
    });
    immediate.and_then(|result| callback.and_then(|callback| callback(result)))
}
