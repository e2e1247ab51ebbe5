//! The usage that this process enforces during one outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::memory::{ForgottenDenials, Memory};
use crate::store::url::MemoryBounds;

/// What is enforced locally. It is less than a memory store has by default: the store is another one, and this is in
/// addition.
const BOUNDS: MemoryBounds = MemoryBounds { max_keys: 1_000_000, max_bytes: 256 << 20 };

/// A memory store for one outage.
pub(super) struct OutageUsage {
    pub(super) memory: Memory,
    /// The number of the outage, from 1.
    pub(super) outage: u64,
    used: AtomicBool,
}

impl OutageUsage {
    pub(super) fn new(outage: u64, forgotten_denials: Arc<ForgottenDenials>) -> Self {
        Self { memory: Memory::new(BOUNDS, forgotten_denials), outage, used: AtomicBool::new(false) }
    }

    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}
