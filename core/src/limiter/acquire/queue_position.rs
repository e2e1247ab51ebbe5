//! A caller's position in a queue. Dropping it leaves the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::wait_queue::WaitQueue;
use crate::process::clock::Signal;

/// Keeps a caller in its queue until it is dropped.
#[derive(Debug)]
pub(super) struct QueuePosition {
    queue: Arc<WaitQueue>,
    number: u64,
    /// The callers in all queues.
    waiting: Arc<AtomicUsize>,
}

impl QueuePosition {
    /// The last position in a queue, for a caller that wants so many units.
    pub(super) fn enter(queue: Arc<WaitQueue>, cost: u64, waiting: Arc<AtomicUsize>) -> Self {
        let number = queue.enter(cost);
        waiting.fetch_add(1, Ordering::Relaxed);
        Self { queue, number, waiting }
    }

    /// The units that the callers ahead want; `None` when this is the first.
    pub(super) fn units_ahead(&self) -> Option<u64> {
        self.queue.units_ahead(self.number)
    }

    /// Notified when a caller has left the queue, and when units of the key were given back.
    pub(super) fn signal(&self) -> &Arc<Signal> {
        self.queue.signal()
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        self.queue.leave(self.number);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
