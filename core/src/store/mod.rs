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

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use call_context::{CallContext, Waits};
use completion::{Completion, WakeTarget};
use layer_states::LayerStates;
use request::{Answer, Entry, OwnedEntry, borrowed, owned};

/// The most entries that one call carries: they occupy a Redis server for about half a millisecond.
pub(crate) const MAX_ENTRIES: usize = 256;

/// Where usage lives, or a layer around that.
pub(crate) trait Store: Send + Sync {
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

    /// Closes what is open; calls that wait are answered with `closed`.
    fn close(&self) {}
}

/// Does one operation on the calling thread.
#[inline]
pub(crate) fn ask(store: &dyn Store, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
    store.begin(entry, context, &mut LayerStates::default()).unwrap_or_else(|| Err(unanswered()))
}

/// As [`ask`], of entries that are decided together.
pub(crate) fn ask_all(
    store: &dyn Store,
    entries: &[Entry<'_>],
    context: CallContext<'_, Vec<Answer>>,
) -> Result<Vec<Answer>> {
    store.begin_all(entries, context, &mut LayerStates::default()).unwrap_or_else(|| Err(unanswered()))
}

/// The answer, if it needs no waiting; without one nothing was done.
#[inline]
pub(crate) fn try_immediate(store: &dyn Store, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
    store.begin(entry, context.waiting(Waits::Never), &mut LayerStates::default())
}

#[cold]
fn unanswered() -> Error {
    Error::new(ErrorKind::StoreRejected, "the store returned without an answer")
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
    let (make, now) = (Cell::new(Some(make)), context.now);
    let complete = |mut states| -> Completion<Answer> {
        let (layers, owned, callback) = (Arc::clone(store), OwnedEntry::from(entry), make.take().map(|make| make()));
        Box::new(move |result| {
            let result = layers.finish(&owned.entry(), now, &mut states, result);
            callback.and_then(|callback| callback(owned, result))
        })
    };
    store.begin(entry, context.waiting(Waits::Later(&complete)), &mut LayerStates::default())
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

/// As [`submit`], of entries that are decided together.
pub(crate) fn submit_all(
    store: &Arc<dyn Store>,
    entries: &[Entry<'_>],
    context: CallContext<'_, Vec<Answer>>,
    callback: impl FnOnce(Result<Vec<Answer>>) -> WakeTarget + Send + 'static,
) -> Option<Result<Vec<Answer>>> {
    let (callback, now) = (Cell::new(Some(callback)), context.now);
    let complete = |mut states| -> Completion<Vec<Answer>> {
        let (layers, kept, callback) = (Arc::clone(store), owned(entries), callback.take());
        Box::new(move |result| {
            let result = layers.finish_all(&borrowed(&kept), now, &mut states, result);
            callback.and_then(|callback| callback(result))
        })
    };
    store.begin_all(entries, context.waiting(Waits::Later(&complete)), &mut LayerStates::default())
}
