//! The limiter that made a Decision, and the mark that the Decision was settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::process::fork;

/// The limiter that answered, and its process. All limiters of the same store and prefix in one process share the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

/// The bits from here on are the number of the process, which counts forks.
const PROCESS_SHIFT: u32 = 48;

impl LimiterId {
    /// The Decision was sent to another process.
    pub(crate) const ELSEWHERE: Self = Self(u64::MAX);

    /// The limiters of a store and prefix with that digest.
    pub(crate) const fn of_digest(digest: u64) -> Self {
        Self(digest & ((1 << PROCESS_SHIFT) - 1))
    }

    /// The limiter as this process knows it.
    #[inline]
    pub(crate) fn here(self) -> Self {
        Self(self.0 | (fork::generation() + 1) << PROCESS_SHIFT)
    }

    /// The number that limiters of the same store and prefix share.
    pub(crate) const fn digest(self) -> u64 {
        self.0 & ((1 << PROCESS_SHIFT) - 1)
    }
}

/// Set once a Decision was settled. Its copies share this. Nothing is allocated before it is copied or settled.
#[derive(Debug, Default)]
pub(crate) struct Settlement(OnceBox<Arc<AtomicBool>>);

impl Clone for Settlement {
    fn clone(&self) -> Self {
        Self(OnceBox::with_value(Box::new(Arc::clone(self.0.get_or_init(Box::default)))))
    }
}

impl Settlement {
    /// True if it has copies, or was settled.
    #[inline(always)]
    pub(super) fn is_shared(&self) -> bool {
        self.0.get().is_some()
    }

    /// Settles it. False if it was settled before.
    pub(crate) fn begin(&self) -> bool {
        !self.0.get_or_init(Box::default).swap(true, Ordering::Relaxed)
    }

    /// Takes the settlement back.
    pub(crate) fn undo(&self) {
        if let Some(settled) = self.0.get() {
            settled.store(false, Ordering::Relaxed);
        }
    }
}
