//! Wakes an event loop once for all answers that it has not taken yet. `loom` searches all interleavings
//! (`tests/rust/tests/event_loops.rs`, which compiles this file with the types of `sync` replaced).
//! Each write is a swap, because loom may put a store before a swap that it follows.

use super::sync::{AtomicBool, Ordering};

/// True if the loop was woken, or reads on its own, and has not taken the answers since.
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// True if the thread that has put an answer has to wake the loop.
    #[inline]
    pub(crate) fn must_wake(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// The loop is about to take the answers on its own. Until `enable` it need not be woken.
    pub(crate) fn suppress(&self) {
        self.0.swap(true, Ordering::AcqRel);
    }

    /// The loop takes the answers behind this. Later answers wake it again.
    pub(crate) fn enable(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
