//! The callers that wait for one policy and key. Only the first asks the store: two callers never get the same wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::process::clock::Signal;

/// The callers of one policy and key, in the order they came.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiters: Mutex<Waiters>,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Waiters {
    last_number: u64,
    /// In the order they came.
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// The units it wants.
    cost: u64,
}

impl WaitQueue {
    /// Adds a caller at the end; returns its number.
    fn enter(&self, cost: u64) -> u64 {
        let mut waiters = self.waiters.lock();
        waiters.last_number += 1;
        let number = waiters.last_number;
        waiters.waiting.push_back(Waiter { number, cost });
        number
    }

    /// Removes a caller and notifies the others.
    fn leave(&self, number: u64) {
        self.waiters.lock().waiting.retain(|waiter| waiter.number != number);
        self.signal.notify();
    }

    /// The units that the callers ahead of that number want; `None` when it is the first.
    fn units_ahead(&self, number: u64) -> Option<u64> {
        let waiters = self.waiters.lock();
        let ahead = waiters.waiting.iter().take_while(|waiter| waiter.number != number);
        ahead.map(|waiter| waiter.cost).reduce(u64::saturating_add)
    }

    /// The units that all callers want.
    pub(super) fn units(&self) -> u64 {
        self.waiters.lock().waiting.iter().fold(0, |sum, waiter| sum.saturating_add(waiter.cost))
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.lock().waiting.len()
    }

    /// Notified when a caller has left, and when units of the key were given back.
    pub(super) const fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

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
