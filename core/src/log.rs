//! What a limiter logs that is no change of a store's state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Called with each warning, on the thread that noticed what it says, with no lock held.
pub(crate) type WarningListener = Arc<dyn Fn(&str) + Send + Sync>;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Log {
    listener: Option<WarningListener>,
}

impl Log {
    pub(crate) fn new(listener: Option<WarningListener>) -> Self {
        Self { listener }
    }

    pub(crate) fn warn(&self, sentence: &str) {
        tracing::warn!(target: "tidegate", "{sentence}");
        if let Some(listener) = &self.listener {
            // A listener that panics must not end the thread, which serves others too.
            drop(catch_unwind(AssertUnwindSafe(|| listener(sentence))));
        }
    }
}
