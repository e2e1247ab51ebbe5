//! How callers hand their calls to the engine: a queue, the state machine behind a lock, and a thread that sleeps while there
//! is nothing to do.
//!
//! A caller that gets the state machine at once serves its call itself. Otherwise it wakes the thread. A thread that
//! falls asleep leaves no call behind: `loom` searches all interleavings (`tests/rust/tests/handover.rs`, which
//! compiles this file with the types of `sync` replaced).

use std::task::{Context, Poll, Waker};

use super::sync::{AtomicBool, Mutex, Ordering};

/// Hands calls from many threads to one state machine. `Q` is the queue, `M` the state machine.
pub(crate) struct Handover<Q, M> {
    queue: Mutex<Q>,
    machine: Mutex<M>,
    /// True if the thread has something to do since it last looked. It may be anywhere: a caller may have moved a call
    /// from the queue to the machine and found that it cannot be sent now.
    called: AtomicBool,
    /// Wakes the thread, while it sleeps.
    sleeper: Mutex<Option<Waker>>,
}

impl<Q, M> Handover<Q, M> {
    pub(crate) fn new(queue: Q, machine: M) -> Self {
        Self {
            queue: Mutex::new(queue),
            machine: Mutex::new(machine),
            called: AtomicBool::new(false),
            sleeper: Mutex::new(None),
        }
    }

    /// Changes the queue.
    pub(crate) fn with_queue<R>(&self, change: impl FnOnce(&mut Q) -> R) -> R {
        change(&mut self.queue.lock())
    }

    /// Lets the calling thread serve the queue. `serve` returns true if nothing is left for the engine's thread.
    /// Otherwise, or if the machine is in use, wakes that thread.
    pub(crate) fn serve(&self, serve: impl FnOnce(&mut M, &Mutex<Q>) -> bool) {
        let served = match self.machine.try_lock() {
            Some(mut machine) => serve(&mut machine, &self.queue),
            // The thread that has the machine looks once more before it sleeps.
            None => false,
        };
        if !served {
            self.wake();
        }
    }

    /// Runs with the machine, unless it is in use.
    pub(crate) fn try_with_machine<R>(&self, run: impl FnOnce(&mut M) -> R) -> Option<R> {
        self.machine.try_lock().map(|mut machine| run(&mut machine))
    }

    /// Makes the thread look once more.
    pub(crate) fn wake(&self) {
        // `poll` does this in the opposite order: either the thread sees that it was called, or we see that it sleeps.
        if !self.called.swap(true, Ordering::SeqCst)
            && let Some(waker) = self.sleeper.lock().take()
        {
            waker.wake();
        }
    }

    /// The loop of the thread. `step` works until nothing is left to do, and is ready if the thread ends.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Context<'_>, &Mutex<M>, &Mutex<Q>) -> Poll<()>,
    ) -> Poll<()> {
        loop {
            *self.sleeper.lock() = None;
            self.called.store(false, Ordering::SeqCst);
            if step(cx, &self.machine, &self.queue).is_ready() {
                return Poll::Ready(());
            }
            *self.sleeper.lock() = Some(cx.waker().clone());
            if !self.called.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
        }
    }
}
