//! Who reads what the servers say: the engines' threads, or an event loop that looks for it itself. Such a loop hears of a
//! reply as soon as it is there; by way of a thread it would hear of it one wake-up later, and that costs more than the
//! check.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

pub(crate) use set::Set;

use super::engine::Shared;
use crate::store::batch_guard::{BatchGuard, Flush};

/// An event loop that watches a set, or a thread.
pub(super) type Reader = Option<Arc<Set>>;

/// See the module. The engines of a limiter share one.
#[derive(Default)]
pub(crate) struct Lookout(Mutex<State>);

#[derive(Default)]
struct State {
    reader: Reader,
    engines: SmallVec<[Weak<Shared>; 1]>,
}

impl State {
    fn tell(&self) {
        self.engines.iter().filter_map(Weak::upgrade).for_each(|engine| engine.watched_by(self.reader.clone()));
    }
}

impl Lookout {
    /// Another engine.
    pub(super) fn enroll(&self, engine: &Arc<Shared>) {
        let mut state = self.0.lock();
        state.engines.retain(|engine| engine.strong_count() > 0);
        state.engines.push(Arc::downgrade(engine));
        if state.reader.is_some() {
            engine.watched_by(state.reader.clone());
        }
    }

    /// From now on whoever asks for this looks for replies; nobody, if somebody does already or the system cannot.
    pub(crate) fn begin(&self) -> Option<Arc<Set>> {
        let mut state = self.0.lock();
        if state.reader.is_some() {
            return None;
        }
        state.reader = Set::new().ok().map(Arc::new);
        state.tell();
        state.reader.clone()
    }

    /// The threads read again, if it is this loop that did.
    pub(crate) fn end(&self, set: &Arc<Set>) {
        self.end_if(|current| Arc::ptr_eq(current, set));
    }

    /// The threads read again.
    pub(crate) fn close(&self) {
        self.end_if(|_| true);
    }

    fn end_if(&self, ends: impl FnOnce(&Arc<Set>) -> bool) {
        let mut state = self.0.lock();
        if state.reader.as_ref().is_some_and(ends) {
            state.reader = None;
            state.tell();
        }
    }

    /// Reads what is there and gives it out, on this thread. The jobs that are queued are in the batch.
    pub(crate) fn look(&self) -> BatchGuard {
        // An answer may make a call that starts one more engine: not under the lock.
        let engines: SmallVec<[Arc<Shared>; 1]> = self.0.lock().engines.iter().filter_map(Weak::upgrade).collect();
        engines.iter().for_each(|engine| engine.look());
        BatchGuard::of(engines.into_iter().map(|engine| engine as Arc<dyn Flush>))
    }
}

#[cfg(target_os = "linux")]
mod set {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::epoll;

    /// Sockets that are one file to whoever watches them: it is readable while one of them is.
    pub(crate) struct Set(OwnedFd);

    impl Set {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Until it is closed, or removed.
        pub(crate) fn add(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::add(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
        }

        /// Whether room to write is to be told of, too.
        pub(crate) fn tell_of_room(&self, socket: impl AsFd, tell: bool) -> io::Result<()> {
            let room = if tell { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            Ok(epoll::modify(&self.0, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN | room)?)
        }

        pub(crate) fn remove(&self, socket: impl AsFd) -> io::Result<()> {
            Ok(epoll::delete(&self.0, socket)?)
        }
    }

    impl AsFd for Set {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

/// Elsewhere the threads read.
#[cfg(not(target_os = "linux"))]
mod set {
    pub(crate) enum Set {}

    impl Set {
        pub(super) fn new() -> std::io::Result<Self> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
    }
}
