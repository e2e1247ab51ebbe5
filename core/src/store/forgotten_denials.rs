//! Counts denials that were forgotten because a store was full, and warns once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::log::{Log, WarningKind};

/// Counts denials that a full store forgot, and warns of the first.
#[derive(Default)]
pub(crate) struct ForgottenDenials {
    count: AtomicU64,
    log: Arc<Log>,
}

impl ForgottenDenials {
    pub(crate) fn shared(log: &Arc<Log>) -> Arc<Self> {
        Arc::new(Self { count: AtomicU64::new(0), log: Arc::clone(log) })
    }

    #[cold]
    pub(in crate::store) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Warns of the first one. `full` returns the name of the full store and some advice. Call it without a lock,
    /// because a listener may make calls itself.
    #[inline]
    pub(in crate::store) fn report(&self, full: impl FnOnce() -> (String, &'static str)) {
        if self.get() > 0 && !self.log.has_warned(WarningKind::ForgottenDenial) {
            self.log.warn_once(WarningKind::ForgottenDenial, || {
                let (what, advice) = full();
                format!(
                    "{what} is full of keys that are being denied: it forgets the denial that ends soonest, and admits its \
                     key before its time: {advice}"
                )
            });
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Begins to count anew, in a forked child.
    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }
}
