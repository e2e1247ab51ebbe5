//! The usage that this process enforces during one outage.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::memory::Memory;

/// The most keys that are enforced locally, not counting keys that are being denied.
const MAX_LOCAL_KEYS: usize = 1_000_000;

/// See the module.
pub(super) struct OutageUsage {
    pub(super) memory: Memory,
    /// The number of the outage, from 1.
    pub(super) outage: u64,
    used: AtomicBool,
}

impl Default for OutageUsage {
    fn default() -> Self {
        Self::new(1)
    }
}

impl OutageUsage {
    pub(super) fn new(outage: u64) -> Self {
        Self { memory: Memory::new(MAX_LOCAL_KEYS), outage, used: AtomicBool::new(false) }
    }

    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}
