//! Takes a call through the layers to a store, and its answer back, however the caller waits for it. A layer acts
//! before the store is asked, and on its answer.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::completion::{Completion, WakeTarget};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, OwnedEntry, borrowed, owned};

/// A layer around a store.
pub(super) trait Layer: Send + Sync + 'static {
    /// The answer, if the store is not to be asked. If the caller does not wait at all, nothing else may be done.
    fn before(&self, entry: &Entry<'_>, context: &CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>>;

    /// Handles a result in place, because a move of it would take as long as the work.
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, states: &LayerStates, result: &mut Result<Answer>);

    /// Fails if the store is not to be asked about so many entries that are decided together.
    fn before_all(&self, _entries: usize, _deadline: Option<Instant>, _states: &mut LayerStates) -> Result<()> {
        Ok(())
    }

    fn after_all(
        &self,
        _entries: &[Entry<'_>],
        _now: Option<u64>,
        _states: &LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        result
    }

    /// Called when a key has other numbers.
    fn numbers_changed(&self, _entry: &Entry<'_>) {}

    /// Called when the store has forgotten everything.
    fn forget_all(&self) {}

    fn close(&self) {}
}

/// A store with a layer around it.
pub(super) struct Layered<L> {
    layer: Arc<L>,
    store: Arc<dyn Store>,
}

impl<L: Layer> Layered<L> {
    pub(super) fn around(layer: Arc<L>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self { layer, store })
    }
}

impl<L: Layer> Store for Layered<L> {
    #[inline]
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        if let Some(result) = self.layer.before(entry, &context, states) {
            return Some(result);
        }
        let mut result = self.store.begin(entry, context, states);
        if let Some(result) = &mut result {
            self.layer.after(entry, context.now, states, result);
        }
        result
    }

    #[inline]
    fn finish(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let mut result = self.store.finish(entry, now, states, result);
        self.layer.after(entry, now, states, &mut result);
        result
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        if let Err(error) = self.layer.before_all(entries.len(), context.deadline, states) {
            return Some(Err(error));
        }
        let result = self.store.begin_all(entries, context, states)?;
        Some(self.layer.after_all(entries, context.now, states, result))
    }

    fn finish_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        let result = self.store.finish_all(entries, now, states, result);
        self.layer.after_all(entries, now, states, result)
    }

    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.store.ping(deadline)
    }

    fn accepts(&self, plan: &Plan) -> Result<()> {
        self.store.accepts(plan)
    }

    fn clear_all(&self) -> Result<()> {
        self.store.clear_all()?;
        self.layer.forget_all();
        Ok(())
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        self.layer.numbers_changed(entry);
        let result = self.store.change_override(entry, now);
        self.layer.numbers_changed(entry);
        result
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.store.overrides(entry, now)
    }

    fn close(&self) {
        self.layer.close();
        self.store.close();
    }
}

/// Does one operation on the calling thread.
#[inline]
pub(crate) fn ask(store: &dyn Store, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
    store.begin(entry, context, &mut LayerStates::default()).unwrap_or_else(|| Err(unanswered()))
}

/// As [`ask`], for entries that are decided together.
pub(crate) fn ask_all(
    store: &dyn Store,
    entries: &[Entry<'_>],
    context: CallContext<'_, Vec<Answer>>,
) -> Result<Vec<Answer>> {
    store.begin_all(entries, context, &mut LayerStates::default()).unwrap_or_else(|| Err(unanswered()))
}

/// The answer, if it needs no waiting. Without an answer nothing was done.
#[inline]
pub(crate) fn try_immediate(store: &dyn Store, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
    store.begin(entry, context.waiting(Waits::Never), &mut LayerStates::default())
}

#[cold]
fn unanswered() -> Error {
    Error::new(ErrorKind::StoreRejected, "the store returned without an answer")
}

/// Does one operation without waiting. An answer that needs no waiting is returned. Any other goes to the callback that
/// `make` makes. Everything that is kept of the call meanwhile is in one box.
pub(crate) fn submit<T>(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    context: CallContext<'_>,
    make: impl FnOnce() -> T,
) -> Option<Result<Answer>>
where
    T: FnOnce(&Arc<dyn Store>, OwnedEntry, Result<Answer>) -> WakeTarget + Send + 'static,
{
    let (make, now) = (Cell::new(Some(make)), context.now);
    let complete = |mut states| -> Completion<Answer> {
        let layers = Arc::clone(store);
        let owned = OwnedEntry::from(entry);
        let callback = make.take().map(|make| make());
        Box::new(move |result| {
            let result = layers.finish(&owned.entry(), now, &mut states, result);
            callback.and_then(|callback| callback(&layers, owned, result))
        })
    };
    store.begin(entry, context.waiting(Waits::Later(&complete)), &mut LayerStates::default())
}

/// Makes a call. Its callback is called in any case, also with an answer that needs no waiting.
pub(crate) fn submit_then(
    store: &Arc<dyn Store>,
    entry: &Entry<'_>,
    context: CallContext<'_>,
    callback: impl FnOnce(Result<Answer>) -> WakeTarget + Send + 'static,
) -> WakeTarget {
    let mut callback = Some(callback);
    let immediate = submit(store, entry, context, || {
        let callback = callback.take();
        move |_: &Arc<dyn Store>, _, result| callback.and_then(|callback| callback(result))
    });
    immediate.and_then(|result| callback.and_then(|callback| callback(result)))
}

/// As [`submit`], for entries that are decided together.
pub(crate) fn submit_all(
    store: &Arc<dyn Store>,
    entries: &[Entry<'_>],
    context: CallContext<'_, Vec<Answer>>,
    callback: impl FnOnce(Result<Vec<Answer>>) -> WakeTarget + Send + 'static,
) -> Option<Result<Vec<Answer>>> {
    let (callback, now) = (Cell::new(Some(callback)), context.now);
    let complete = |mut states| -> Completion<Vec<Answer>> {
        let layers = Arc::clone(store);
        let kept = owned(entries);
        let callback = callback.take();
        Box::new(move |result| {
            let result = layers.finish_all(&borrowed(&kept), now, &mut states, result);
            callback.and_then(|callback| callback(result))
        })
    };
    store.begin_all(entries, context.waiting(Waits::Later(&complete)), &mut LayerStates::default())
}
