//! Chooses who reads the replies for a limiter: the only event loop that uses it, or threads. `loom` searches all interleavings of
//! the threads that change it (`tests/rust/tests/event_loops.rs`, which compiles this file with the types of `sync` replaced).
//! Each write is a swap, because loom may put a store before a swap that it follows.

use super::sync::{AtomicU64, Ordering};

/// No loop has used the limiter yet.
const UNUSED: u64 = 0;
/// A loop is about to read.
const CHANGES: u64 = u64::MAX - 1;
/// Threads of the core read from now on.
const THREADS: u64 = u64::MAX;

/// The number of the loop that reads.
pub(crate) struct ReaderChoice(AtomicU64);

impl ReaderChoice {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(UNUSED))
    }

    /// True if the loop of this number has nothing to change.
    #[inline]
    pub(crate) fn suits(&self, number: u64) -> bool {
        let reader = self.0.load(Ordering::Relaxed);
        reader == number || reader == THREADS
    }

    /// Lets the loop of this number read, or threads, if another loop uses the limiter too. `end` makes threads read, and returns
    /// true if it has told another loop to stop. `register` makes the loop read, and returns false if it cannot.
    pub(crate) fn change<E>(
        &self,
        number: u64,
        end: impl Fn() -> bool,
        register: impl FnOnce() -> Result<bool, E>,
    ) -> Result<(), E> {
        let before = self.0.swap(CHANGES, Ordering::AcqRel);
        let is_alone = before != CHANGES && before != THREADS;
        if !is_alone {
            self.0.swap(THREADS, Ordering::AcqRel);
        }
        if end() || !is_alone {
            // Two loops use the limiter. The answers of one must not depend on the pace of the other.
            self.0.swap(THREADS, Ordering::AcqRel);
            return Ok(());
        }
        let registered = register();
        let reader = registered.as_ref().map_or(UNUSED, |reads| if *reads { number } else { THREADS });
        // Another loop may have begun to use the limiter meanwhile.
        if self.0.compare_exchange(CHANGES, reader, Ordering::AcqRel, Ordering::Acquire).is_err() {
            end();
        }
        registered.map(drop)
    }
}
