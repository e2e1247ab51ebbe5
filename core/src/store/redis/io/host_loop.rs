//! Who reads replies: the engines' threads, or an event loop of the host that reads them itself. Such a loop hears of a reply
//! as soon as it is there. Through a thread it would hear of it one wake-up later, and that costs more than the check.

use std::sync::{Arc, Weak};

use crate::process::lock::Mutex;
use smallvec::SmallVec;

use super::epoll_set::{EpollSet, ReplyReader};
use crate::store::batch_guard::{BatchGuard, Flush};

/// An engine whose replies an event loop can read.
pub(super) trait PolledEngine: Flush {
    /// From now on that event loop reads replies, or the engine's thread does again.
    fn read_through(&self, reader: ReplyReader);

    /// Reads what has come, on the thread of the event loop. Nothing is sent yet: the callers may call again.
    fn poll_replies(&self);
}

/// Knows who reads the replies. The engines of a limiter share one.
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

    /// From now on the caller reads replies. `None` when another loop does, or when the system cannot.
    pub(crate) fn begin(&self) -> Option<Arc<EpollSet>> {
        let mut state = self.0.lock();
        if state.reader.is_some() {
            return None;
        }
        state.reader = EpollSet::new().ok().map(Arc::new);
        state.tell_engines();
        state.reader.clone()
    }

    /// The threads read again, if it was this loop that did.
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

    /// Reads what has come and gives it out, on this thread. The calls that wait are in the guard.
    pub(crate) fn poll_replies(&self) -> BatchGuard {
        // A completion may make a call that starts one more engine: not under the lock.
        let engines: SmallVec<[Arc<dyn PolledEngine>; 1]> =
            self.0.lock().engines.iter().filter_map(Weak::upgrade).collect();
        engines.iter().for_each(|engine| engine.poll_replies());
        BatchGuard::of(engines.into_iter().map(|engine| engine as Arc<dyn Flush>))
    }
}
