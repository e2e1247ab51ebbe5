//! Counts calls that have no reply yet, so that a close can wait for them. A forked child counts its own.

use std::sync::Arc;
use std::time::Instant;

use crate::process::lock::{Condvar, Mutex};

use super::fork::{PerProcess, ProcessValue};

/// The number of calls without a reply.
#[derive(Default)]
pub(crate) struct PendingCount(PerProcess<Pending>);

#[derive(Default)]
struct Pending {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A call that is counted until this is dropped.
pub(crate) struct CountedCall(Arc<ProcessValue<Pending>>);

impl PendingCount {
    pub(crate) fn begin(&self) -> CountedCall {
        let pending = self.0.get_or_init(Pending::default);
        *pending.count.lock() += 1;
        CountedCall(pending)
    }

    /// Waits until no call is left, at most until the deadline.
    pub(crate) fn wait(&self, deadline: Instant) {
        let Some(pending) = self.0.get() else { return };
        let mut count = pending.count.lock();
        let mut is_over = false;
        while *count > 0 && !is_over {
            (count, is_over) = pending.changed.wait_until(count, deadline);
        }
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}
