//! Whose Decision it is, and whether it was settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::process::fork;

/// Which limiter answered, in which process: one number for all limiters of the same store and prefix in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

/// The bits that name the process: how often it was forked.
const PROCESS_SHIFT: u32 = 48;

impl LimiterId {
    /// The Decision was sent to another process.
    pub(crate) const ELSEWHERE: Self = Self(u64::MAX);

    /// Limiters whose store and prefix have that digest.
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

/// Whether a Decision was settled. Its copies share this; nothing is allocated before there is a copy.
#[derive(Debug, Default)]
pub(crate) struct Settlement(OnceBox<Arc<AtomicBool>>);

impl Clone for Settlement {
    fn clone(&self) -> Self {
        Self(OnceBox::with_value(Box::new(Arc::clone(self.0.get_or_init(Box::default)))))
    }
}

impl Settlement {
    /// Whether it has copies, or was settled.
    #[inline(always)]
    pub(super) fn is_shared(&self) -> bool {
        self.0.get().is_some()
    }

    /// Settles it; false when it was settled before.
    pub(crate) fn begin(&self) -> bool {
        !self.0.get_or_init(Box::default).swap(true, Ordering::Relaxed)
    }

    /// It was not settled after all.
    pub(crate) fn undo(&self) {
        if let Some(settled) = self.0.get() {
            settled.store(false, Ordering::Relaxed);
        }
    }
}
