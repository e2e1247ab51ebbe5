//! Chooses the reader of replies: the engines' threads, or an event loop of the host. Such a loop sees a reply as soon
//! as it is there. Through a thread it would see it one wake-up later, and that costs more than the check.

use std::sync::{Arc, Weak};

use crate::process::lock::Mutex;
use smallvec::SmallVec;

use super::epoll_set::{EpollSet, ReplyReader};
use crate::store::batch_guard::{BatchGuard, Flush};

/// An engine that lets an event loop read its replies.
pub(super) trait PolledEngine: Flush {
    /// From now on this event loop reads replies, or without one the engine's thread does again.
    fn read_through(&self, reader: ReplyReader);

    /// Reads the replies that have come, on the event loop's thread. New batches wait: the callers may call again.
    fn poll_replies(&self);
}

/// Knows the reader of the replies. The engines of a limiter share one registry.
#[derive(Default)]
pub(crate) struct ReaderRegistry(Mutex<State>);

#[derive(Default)]
struct State {
    reader: ReplyReader,
    engines: SmallVec<[Weak<dyn PolledEngine>; 1]>,
}

impl State {
    fn tell_engines(&self) {
        self.engines.iter().filter_map(Weak::upgrade).for_each(|engine| engine.read_through(self.reader.clone()));
    }
}

impl ReaderRegistry {
    /// Adds an engine.
    pub(super) fn register(&self, engine: &Arc<dyn PolledEngine>) {
        let mut state = self.0.lock();
        state.engines.retain(|engine| engine.strong_count() > 0);
        state.engines.push(Arc::downgrade(engine));
        if state.reader.is_some() {
            engine.read_through(state.reader.clone());
        }
    }

    /// From now on the caller reads replies. `None` if another loop does, or if the system cannot do it.
    pub(crate) fn begin(&self) -> Option<Arc<EpollSet>> {
        let mut state = self.0.lock();
        if state.reader.is_some() {
            return None;
        }
        state.reader = EpollSet::new().ok().map(Arc::new);
        state.tell_engines();
        state.reader.clone()
    }

    /// The threads read again, if this loop was the reader.
    pub(crate) fn end(&self, set: &Arc<EpollSet>) {
        self.end_if(|current| Arc::ptr_eq(current, set));
    }

    /// The threads read again.
    pub(crate) fn close(&self) {
        self.end_if(|_| true);
    }

    fn end_if(&self, ends: impl FnOnce(&Arc<EpollSet>) -> bool) {
        let mut state = self.0.lock();
        if state.reader.as_ref().is_some_and(ends) {
            state.reader = None;
            state.tell_engines();
        }
    }

    /// Reads replies and gives them out, on this thread. The returned guard sends the calls that wait.
    pub(crate) fn poll_replies(&self) -> BatchGuard {
        // Not under the lock, because a completion may make a call that starts one more engine.
        let engines: SmallVec<[Arc<dyn PolledEngine>; 1]> =
            self.0.lock().engines.iter().filter_map(Weak::upgrade).collect();
        engines.iter().for_each(|engine| engine.poll_replies());
        BatchGuard::of(engines.into_iter().map(|engine| engine as Arc<dyn Flush>))
    }
}
