//! Whose Decision it is, and whether it was settled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Which limiter answered: one number for all limiters of the same store and prefix, in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimiterId(pub(crate) u64);

/// Whether a Decision was settled. Its copies share this; nothing is allocated before there is a copy.
#[derive(Debug, Default)]
pub(crate) struct Settlement(OnceLock<Arc<AtomicBool>>);

impl Clone for Settlement {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.0.get_or_init(Arc::default))))
    }
}

impl Settlement {
    /// Settles it; false when it was settled before.
    pub(crate) fn begin(&self) -> bool {
        !self.0.get_or_init(Arc::default).swap(true, Ordering::Relaxed)
    }

    /// It was not settled after all.
    pub(crate) fn undo(&self) {
        if let Some(settled) = self.0.get() {
            settled.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.0.get().is_some_and(|settled| settled.load(Ordering::Relaxed))
    }
}
