//! Counts the calls of leases that have no reply yet, for `close` to wait for them.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// The number of calls without a reply.
#[derive(Default)]
pub(super) struct PendingCount {
    count: Mutex<usize>,
    changed: Condvar,
}

impl PendingCount {
    pub(super) fn begin(&self) {
        *self.count.lock() += 1;
    }

    pub(super) fn end(&self) {
        *self.count.lock() -= 1;
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, deadline: Instant) {
        let mut count = self.count.lock();
        while *count > 0 && !self.changed.wait_until(&mut count, deadline).timed_out() {}
    }
}
