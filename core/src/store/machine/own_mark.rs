//! The mark of this process, which a forked child makes anew.

use super::sync::{AtomicU64, Ordering};

/// The mark, 0 if none was made, and how many forks are behind the process that made it.
pub(super) struct OwnMark {
    pub(super) mark: AtomicU64,
    pub(super) generation: AtomicU64,
}

impl OwnMark {
    /// The mark of the process with so many forks behind it. It is written before its generation: a thread that takes
    /// the mark of the parent for its own leaves locks behind that no process takes over while the parent lives.
    #[inline]
    pub(super) fn get(&self, generation: u64, make: impl FnOnce() -> u64) -> u64 {
        if self.generation.load(Ordering::Acquire) == generation {
            let mark = self.mark.load(Ordering::Relaxed);
            if mark != 0 {
                return mark;
            }
        }
        let mark = make();
        self.mark.store(mark, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
        mark
    }
}
