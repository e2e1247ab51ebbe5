//! What a layer does before a store is asked, and what it makes of the answer, however the caller waits for that.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Result;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry};

/// A layer around a store.
pub(super) trait Layer: Send + Sync + 'static {
    /// The answer where the store is not to be asked. Where the caller does not wait at all, nothing else may be done.
    fn before(
        &self,
        entry: &Entry<'_>,
        context: &CallContext<'_>,
        states: &mut LayerStates,
    ) -> Option<Result<Answer>>;

    fn after(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer>;

    /// Fails where the store is not to be asked about so many entries that are decided together.
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

    /// The store has forgotten everything.
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
        let result = self.store.begin(entry, context, states)?;
        Some(self.layer.after(entry, context.now, states, result))
    }

    #[inline]
    fn finish(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let result = self.store.finish(entry, now, states, result);
        self.layer.after(entry, now, states, result)
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

    fn clear_all(&self) -> Result<()> {
        self.store.clear_all()?;
        self.layer.forget_all();
        Ok(())
    }

    fn close(&self) {
        self.layer.close();
        self.store.close();
    }
}
