//! What a layer does before a store is asked, and what it makes of the answer: the same for calls that wait on their
//! thread and for those that do not.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::Result;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, MakeCompletion, PingCompletion, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, borrowed, owned};

/// What a layer remembers of a call until its answer is there, as words of [`LayerStates`].
pub(super) trait LayerState: Copy + Default + Send + 'static {
    /// How many words it takes.
    const WORDS: usize;

    fn save(self, states: &mut LayerStates);
    fn load(states: &mut LayerStates) -> Self;
}

/// For a layer that remembers nothing.
impl LayerState for () {
    const WORDS: usize = 0;

    #[inline]
    fn save(self, _: &mut LayerStates) {}

    #[inline]
    fn load(_: &mut LayerStates) -> Self {}
}

/// A layer around a store.
pub(super) trait Layer: Send + Sync + 'static {
    type State: LayerState;

    /// Breaks with the answer where the store is not to be asked.
    fn before(&self, entry: &Entry<'_>, context: CallContext<'_>) -> ControlFlow<Result<Answer>, Self::State>;

    fn after(&self, entry: &Entry<'_>, now: Option<u64>, state: Self::State, result: Result<Answer>) -> Result<Answer>;

    /// Fails where the store is not to be asked about entries that are decided together.
    fn before_all(&self, _entries: &[Entry<'_>], _context: CallContext<'_>) -> Result<Self::State> {
        Ok(Self::State::default())
    }

    fn after_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        state: Self::State,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>>;

    /// The answer that `before` would break with; a call without one may never be made.
    fn try_immediate(&self, _entry: &Entry<'_>, _now: Option<u64>) -> Option<Result<Answer>> {
        None
    }

    /// The store has forgotten everything.
    fn forget_all(&self) {}

    fn close(&self) {}
}

/// A layer around a store.
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
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        match self.layer.before(entry, context) {
            ControlFlow::Break(result) => result,
            ControlFlow::Continue(state) => self.layer.after(entry, context.now, state, self.store.ask(entry, context)),
        }
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let state = self.layer.before_all(entries, context)?;
        self.layer.after_all(entries, context.now, state, self.store.ask_all(entries, context))
    }

    #[inline]
    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let state = match self.layer.before(entry, context) {
            ControlFlow::Break(result) => return Some(result),
            ControlFlow::Continue(state) => state,
        };
        state.save(states);
        let result = self.store.submit(entry, context, states, make)?;
        Some(self.layer.after(entry, context.now, state, result))
    }

    #[inline]
    fn after(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let state = L::State::load(states);
        self.layer.after(entry, now, state, self.store.after(entry, now, states, result))
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        let state = match self.layer.before_all(entries, context) {
            Ok(state) => state,
            Err(error) => return wake(done(Err(error))),
        };
        let (layer, kept, now) = (Arc::clone(&self.layer), owned(entries), context.now);
        let done = move |result| done(layer.after_all(&borrowed(&kept), now, state, result));
        self.store.submit_all(entries, context, Box::new(done));
    }

    fn ping(&self, context: CallContext<'_>) -> Result<()> {
        self.store.ping(context)
    }

    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion) {
        self.store.submit_ping(context, done);
    }

    fn clear_all(&self) -> Result<()> {
        self.store.clear_all()?;
        self.layer.forget_all();
        Ok(())
    }

    fn submit_clear_all(&self, done: PingCompletion) {
        let layer = Arc::clone(&self.layer);
        let forget = move |result: Result<()>| {
            if result.is_ok() {
                layer.forget_all();
            }
            done(result)
        };
        self.store.submit_clear_all(Box::new(forget));
    }

    fn close(&self) {
        self.layer.close();
        self.store.close();
    }

    #[inline]
    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
        if let Some(result) = self.layer.try_immediate(entry, context.now) {
            return Some(result);
        }
        let result = self.store.try_immediate(entry, context)?;
        Some(self.layer.after(entry, context.now, L::State::default(), result))
    }
}
