//! The callback for the answer to a waiting call, and the collectors that it wakes.

use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::mpsc::{Receiver, channel};

use smallvec::SmallVec;

use crate::error::Result;

/// A collector of answers. It is woken once after all answers that arrived together.
pub trait Wake: Send + Sync {
    /// More answers have arrived. Called on the thread that received them.
    fn wake(&self);
}

/// The collector to wake after a completion has run.
pub(crate) type WakeTarget = Option<Arc<dyn Wake>>;

/// Called once with the answer to a call, on the thread that received it.
pub(crate) type Completion<T> = Box<dyn FnOnce(Result<T>) -> WakeTarget + Send>;

/// A completion that hands the answer to a caller who waits on its thread.
#[cfg(feature = "redis")]
pub(crate) fn awaited<T: Send + 'static>() -> (Completion<T>, Receiver<Result<T>>) {
    let (sender, receiver) = channel();
    let completion: Completion<T> = Box::new(move |result| {
        // The caller may have given up.
        let _ = sender.send(result);
        None
    });
    (completion, receiver)
}

/// Targets to wake, each once, when the set is dropped.
#[derive(Default)]
pub(crate) struct WakeSet(SmallVec<[Arc<dyn Wake>; 2]>);

impl WakeSet {
    #[inline]
    pub(crate) fn add(&mut self, target: WakeTarget) {
        if let Some(target) = target
            && !self.0.iter().any(|known| Arc::ptr_eq(known, &target))
        {
            self.0.push(target);
        }
    }
}

impl Drop for WakeSet {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|target| target.wake());
    }
}

/// Wakes the target of a single completion.
pub(crate) fn wake(target: WakeTarget) {
    WakeSet::default().add(target);
}
