//! The warnings of a limiter, apart from changes of a store's state.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Called with each warning, on the thread that noticed the problem, with no lock held.
pub(crate) type WarningListener = Arc<dyn Fn(&str) + Send + Sync>;

/// A warning that a limiter gives once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarningKind {
    /// A server may evict keys.
    #[cfg(feature = "redis")]
    Eviction,
    /// Any server is trusted, whatever its certificate.
    #[cfg(feature = "tls")]
    Unverified,
    /// Another release counts other limits under the name of a policy.
    OtherRelease,
    /// The memory of this process forgot a denial before its time.
    ForgottenDenial,
    /// A file that processes share is full.
    #[cfg(all(unix, feature = "redis"))]
    FullStore,
    /// The data for `tidegate top` cannot be published.
    Unpublished,
}

/// Logs one warning of each kind.
#[derive(Default)]
pub(crate) struct Log {
    listener: Option<WarningListener>,
    /// A bit for each kind that was logged.
    logged: AtomicU32,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("logged", &self.logged).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(listener: Option<WarningListener>) -> Arc<Self> {
        Arc::new(Self { listener, logged: AtomicU32::new(0) })
    }

    pub(crate) fn has_warned(&self, kind: WarningKind) -> bool {
        self.logged.load(Ordering::Relaxed) & 1 << kind as u32 != 0
    }

    /// Logs a warning, unless one of its kind was logged before.
    #[cold]
    pub(crate) fn warn_once(&self, kind: WarningKind, sentence: impl FnOnce() -> String) {
        let bit = 1 << kind as u32;
        if self.logged.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.warn(&sentence());
        }
    }

    /// Logs the warnings of lint about a policy file that is loaded.
    pub(crate) fn file_warnings(&self, warnings: &[impl fmt::Display]) {
        for warning in warnings {
            self.warn(&format!("policy file {warning}"));
        }
    }

    pub(crate) fn warn(&self, sentence: &str) {
        tracing::warn!(target: "tidegate", "{sentence}");
        if let Some(listener) = &self.listener {
            // A listener that panics must not end the thread, which serves others too.
            drop(catch_unwind(AssertUnwindSafe(|| listener(sentence))));
        }
    }
}
