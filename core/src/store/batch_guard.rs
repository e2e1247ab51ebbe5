//! Calls that are sent together.
//!
//! A call that is queued while nothing is in flight is sent at once, alone, and the calls queued after it wait for its
//! reply. A host that makes several calls in one turn of its event loop queues them with a [`BatchGuard`] instead: the
//! engines send them together.

use std::sync::Arc;

use crate::process::lock::Mutex;
use smallvec::SmallVec;

/// If this many callers or more were answered together, they call again in two halves: the server works on one half
/// while the host prepares the other.
const SPLIT: usize = 16;

/// How many calls to send together after `answered` were answered together: all of them, or half if they are many.
#[must_use]
pub const fn cohort_size(answered: usize) -> usize {
    if answered < SPLIT { answered } else { answered / 2 }
}

/// An engine with a queue of calls.
pub(crate) trait Flush: Send + Sync {
    /// Sends what is queued, as far as it can be sent now.
    fn flush(&self);
}

/// Calls that are sent together: when the expected number has joined, on [`send`](Self::send), and at the latest when
/// the guard is dropped, also by a panic.
#[derive(Default)]
pub struct BatchGuard(Mutex<Cohort>);

#[derive(Default)]
struct Cohort {
    /// Engines that have calls to send, each once.
    engines: SmallVec<[Arc<dyn Flush>; 1]>,
    /// Calls that have joined since the last send.
    joined: usize,
    /// How many join before they are sent. 0 if that is not known.
    size: usize,
}

impl BatchGuard {
    /// A batch to which these engines belong already.
    pub(crate) fn of(engines: impl IntoIterator<Item = Arc<dyn Flush>>) -> Self {
        Self(Mutex::new(Cohort { engines: engines.into_iter().collect(), joined: 0, size: 0 }))
    }

    /// Notes that `answered` calls were answered together. Their callers mostly call again in the same turn of the
    /// event loop, so the guard sends [`cohort_size`] of them together. After a send the count begins again.
    pub fn expect(&self, answered: usize) {
        let mut cohort = self.0.lock();
        (cohort.joined, cohort.size) = (0, cohort_size(answered));
    }

    /// Notes that a call was queued in that engine.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn join<E: Flush + 'static>(&self, engine: &Arc<E>) {
        let mut cohort = self.0.lock();
        if !cohort.engines.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(engine))) {
            cohort.engines.push(Arc::<E>::clone(engine));
        }
        let ready = cohort.count();
        drop(cohort);
        flush(ready);
    }

    /// Counts a caller of the cohort that was answered at once, though there is nothing to send for it.
    pub(crate) fn skip(&self) {
        let ready = self.0.lock().count();
        flush(ready);
    }

    /// Sends the calls that have joined.
    pub fn send(&self) {
        let engines = self.0.lock().take();
        flush(engines);
    }
}

impl Drop for BatchGuard {
    fn drop(&mut self) {
        self.send();
    }
}

type Engines = SmallVec<[Arc<dyn Flush>; 1]>;

impl Cohort {
    /// Counts one more call. Returns the engines to flush when the cohort is complete.
    fn count(&mut self) -> Engines {
        self.joined += 1;
        if self.joined == self.size { self.take() } else { Engines::new() }
    }

    fn take(&mut self) -> Engines {
        self.joined = 0;
        std::mem::take(&mut self.engines)
    }
}

/// Call it without the lock of a guard: sending may complete calls, and their callers may call again.
fn flush(engines: Engines) {
    engines.iter().for_each(|engine| engine.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Engine(AtomicUsize);

    impl Flush for Engine {
        fn flush(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sent(engine: &Engine) -> usize {
        engine.0.load(Ordering::Relaxed)
    }

    #[test]
    fn each_engine_is_flushed_once_for_all_calls_that_joined() {
        let (one, other) = (Arc::new(Engine::default()), Arc::new(Engine::default()));
        let batch = BatchGuard::default();
        (0..5).for_each(|_| batch.join(&one));
        batch.join(&other);
        assert_eq!((sent(&one), sent(&other)), (0, 0));
        batch.send();
        assert_eq!((sent(&one), sent(&other)), (1, 1));
        // Nothing is left for the drop, and nothing joins after it.
        drop(batch);
        assert_eq!((sent(&one), sent(&other)), (1, 1));
    }

    #[test]
    fn what_has_joined_is_sent_by_the_drop() {
        let engine = Arc::new(Engine::default());
        let batch = BatchGuard::default();
        batch.join(&engine);
        drop(batch);
        assert_eq!(sent(&engine), 1);
    }

    #[test]
    fn a_panic_leaves_no_call_unsent() {
        let engine = Arc::new(Engine::default());
        let joined = Arc::clone(&engine);
        let panicked = std::thread::spawn(move || {
            let batch = BatchGuard::default();
            batch.join(&joined);
            panic!("the caller's code");
        });
        assert!(panicked.join().is_err());
        assert_eq!(sent(&engine), 1);
    }

    #[test]
    fn a_complete_cohort_is_sent_and_the_count_begins_again() {
        let engine = Arc::new(Engine::default());
        let batch = BatchGuard::of([Arc::<Engine>::clone(&engine) as Arc<dyn Flush>]);
        batch.expect(3);
        for round in 1..4 {
            batch.join(&engine);
            // One that was answered at once counts too.
            batch.skip();
            assert_eq!(sent(&engine), round - 1);
            batch.join(&engine);
            assert_eq!(sent(&engine), round);
        }
        // Fewer than expected wait for the end.
        batch.join(&engine);
        batch.join(&engine);
        drop(batch);
        assert_eq!(sent(&engine), 4);
    }

    #[test]
    fn an_engine_that_belongs_to_the_batch_is_flushed_though_no_call_joined() {
        let engine = Arc::new(Engine::default());
        drop(BatchGuard::of([Arc::<Engine>::clone(&engine) as Arc<dyn Flush>]));
        assert_eq!(sent(&engine), 1);
    }

    #[test]
    fn a_large_cohort_is_sent_in_two_halves() {
        assert_eq!([0, 1, 15, 16, 17, 256].map(cohort_size), [0, 1, 15, 8, 8, 128]);
    }

    #[test]
    fn a_call_may_join_while_the_batch_is_being_sent() {
        struct Again(Mutex<Option<(Arc<BatchGuard>, Arc<Engine>)>>);
        impl Flush for Again {
            fn flush(&self) {
                if let Some((batch, engine)) = self.0.lock().take() {
                    batch.join(&engine);
                }
            }
        }
        let (batch, engine) = (Arc::new(BatchGuard::default()), Arc::new(Engine::default()));
        let again = Arc::new(Again(Mutex::new(Some((Arc::clone(&batch), Arc::clone(&engine))))));
        batch.join(&again);
        batch.send();
        assert_eq!(sent(&engine), 0);
        drop(batch);
        assert_eq!(sent(&engine), 1);
    }
}
