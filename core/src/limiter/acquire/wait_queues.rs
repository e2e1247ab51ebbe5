//! The queues of a limiter in which callers wait.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::queue_position::QueuePosition;
use super::wait_queue::WaitQueue;
use crate::error::Result;
use crate::fork::PerProcess;
use crate::plan::Plan;
use crate::table_key::TableKey;

/// Queues kept before the empty ones are removed.
const SWEEP_THRESHOLD: usize = 1_024;

/// A policy's identity and a key.
type PolicyAndKey = (u128, TableKey);

/// The queues of one process. A queue lives as long as a caller has a position in it.
type OpenQueues = Mutex<HashMap<PolicyAndKey, Weak<WaitQueue>>>;

/// See the module. A forked child begins without queues: the threads that wait in them exist only in its parent.
#[derive(Default)]
pub(in crate::limiter) struct WaitQueues {
    open: PerProcess<OpenQueues>,
}

impl WaitQueues {
    /// Enters the queue of a key.
    pub(in crate::limiter) fn join(&self, plan: &Plan, key: &str, cost: u64) -> Result<QueuePosition> {
        let open = self.open.get_or_try_init(|| Ok(OpenQueues::default()))?;
        let mut open = open.lock();
        if open.len() > SWEEP_THRESHOLD {
            open.retain(|_, queue| queue.strong_count() > 0);
        }
        let known = open.entry((plan.identity, TableKey::of(key))).or_default();
        let queue = known.upgrade().unwrap_or_else(|| {
            let queue = Arc::default();
            *known = Arc::downgrade(&queue);
            queue
        });
        Ok(QueuePosition::enter(queue, cost))
    }

    /// How many callers wait for a key.
    pub(in crate::limiter) fn waiting(&self, plan: &Plan, key: &str) -> usize {
        let Some(open) = self.open.get() else { return 0 };
        let queue = open.lock().get(&(plan.identity, TableKey::of(key))).and_then(Weak::upgrade);
        queue.map_or(0, |queue| queue.len())
    }

    /// Units of a key were given back: the first caller in its queue may ask again before its time.
    pub(in crate::limiter) fn given_back(&self, plan: &Plan, key: &str) {
        let Some(open) = self.open.get() else { return };
        let open = open.lock();
        if open.is_empty() {
            return;
        }
        if let Some(queue) = open.get(&(plan.identity, TableKey::of(key))).and_then(Weak::upgrade) {
            queue.signal().notify();
        }
    }
}
