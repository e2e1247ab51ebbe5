//! The queues of a limiter for callers that wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::process::lock::Mutex;

use super::queue_estimate::WantedUnits;
use super::wait_queue::{QueuePosition, TurnPlace, WaitQueue, Wanted};
use crate::error::Result;
use crate::limiter::LimiterCore;
use crate::plan::Plan;
use crate::process::fork::PerProcess;
use crate::tables::table_key::TableKey;

/// Queues kept before the empty ones are removed.
const SWEEP_THRESHOLD: usize = 1_024;

/// The most callers that may wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::limiter) struct WaitBounds {
    /// In all.
    pub(in crate::limiter) all: usize,
    /// For one policy and key.
    pub(in crate::limiter) per_key: usize,
}

impl WaitBounds {
    pub(in crate::limiter) const DEFAULT: Self = Self { all: 10_000, per_key: 1_000 };
}

/// A policy's identity and a key.
type PolicyAndKey = (u128, TableKey);

/// The queues of one process. A queue lives as long as a caller has a position in it.
#[derive(Default)]
struct OpenQueues {
    by_key: Mutex<QueuesByKey>,
    /// The callers in all queues.
    waiting: Arc<AtomicUsize>,
}

struct QueuesByKey {
    queues: HashMap<PolicyAndKey, Weak<WaitQueue>>,
    sweep_at: usize,
}

impl Default for QueuesByKey {
    fn default() -> Self {
        Self { queues: HashMap::new(), sweep_at: SWEEP_THRESHOLD }
    }
}

impl QueuesByKey {
    fn get(&self, plan: &Plan, key: &str) -> Option<Arc<WaitQueue>> {
        if self.queues.is_empty() {
            return None;
        }
        self.queues.get(&(plan.identity, TableKey::of(key))).and_then(Weak::upgrade)
    }

    /// Removes the queues without callers, at most once for each doubling of their number.
    fn sweep(&mut self) {
        if self.queues.len() >= self.sweep_at {
            self.queues.retain(|_, queue| queue.strong_count() > 0);
            self.queues.shrink_to(2 * self.queues.len());
            self.sweep_at = SWEEP_THRESHOLD.max(2 * self.queues.len());
        }
    }
}

/// A position in a queue, or the queue was full.
pub(super) enum Joined {
    Position(QueuePosition),
    /// The units that the callers in the queue want.
    Full(WantedUnits),
}

/// All queues of a limiter. A forked child begins without queues, because the threads that wait in them exist only in its parent.
pub(in crate::limiter) struct WaitQueues {
    open: PerProcess<OpenQueues>,
    bounds: WaitBounds,
    /// The number of callers that found no place.
    refused: AtomicU64,
}

impl WaitQueues {
    pub(in crate::limiter) fn new(bounds: WaitBounds) -> Self {
        Self { open: PerProcess::default(), bounds, refused: AtomicU64::new(0) }
    }

    /// Enters the queue of a key, if there is a place.
    pub(super) fn join(&self, core: &LimiterCore, plan: &Arc<Plan>, key: &str, wanted: Wanted) -> Result<Joined> {
        let position = |queue, waiting| QueuePosition::enter(queue, wanted, waiting);
        Ok(self.enter(core, plan, key, position)?.map_or_else(Joined::Full, Joined::Position))
    }

    /// Takes a place for a turn, if there is one.
    pub(super) fn join_turns(&self, core: &LimiterCore, plan: &Arc<Plan>, key: &str) -> Result<Option<TurnPlace>> {
        Ok(self.enter(core, plan, key, TurnPlace::enter)?.ok())
    }

    /// Enters the queue of a key. If it is full, returns the units that its callers want.
    fn enter<T>(
        &self,
        core: &LimiterCore,
        plan: &Arc<Plan>,
        key: &str,
        enter: impl FnOnce(Arc<WaitQueue>, Arc<AtomicUsize>) -> T,
    ) -> Result<std::result::Result<T, WantedUnits>> {
        let open = self.open.get_or_try_init(|| Ok(OpenQueues::default()))?;
        let mut by_key = open.by_key.lock();
        core.open()?;
        let known = by_key.get(plan, key);
        let in_queue = known.as_ref().map_or(0, |queue| queue.places());
        if in_queue >= self.bounds.per_key || open.waiting.load(Ordering::Relaxed) >= self.bounds.all {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(Err(known.map_or_else(WantedUnits::default, |queue| queue.units())));
        }
        let queue = known.unwrap_or_else(|| {
            by_key.sweep();
            let queue = Arc::new(WaitQueue::new(Arc::clone(plan), key, core.hold_id()));
            by_key.queues.insert((plan.identity, TableKey::of(key)), Arc::downgrade(&queue));
            queue
        });
        Ok(Ok(enter(queue, Arc::clone(&open.waiting))))
    }

    /// The queue of a key, if a caller is in it.
    fn of_key(&self, plan: &Plan, key: &str) -> Option<Arc<WaitQueue>> {
        self.open.get()?.by_key.lock().get(plan, key)
    }

    /// True if a caller waits or is about to.
    pub(super) fn has_callers(&self) -> bool {
        self.open.get().is_some_and(|open| open.waiting.load(Ordering::Relaxed) > 0)
    }

    /// The number of callers that found no place.
    pub(in crate::limiter) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts them anew, in a forked child.
    pub(in crate::limiter) fn forget_refused(&self) {
        self.refused.store(0, Ordering::Relaxed);
    }

    /// The number of callers that wait for a key.
    pub(in crate::limiter) fn waiting(&self, plan: &Plan, key: &str) -> usize {
        self.of_key(plan, key).map_or(0, |queue| queue.len())
    }

    /// Closes all queues, and then calls `close`. No caller enters a queue meanwhile or afterwards, and none gives up a
    /// turn that belongs to the limiter.
    pub(super) fn close<T>(&self, close: impl FnOnce() -> T) -> (Vec<Arc<WaitQueue>>, T) {
        let open = self.open.get_or_init(OpenQueues::default);
        let by_key = open.by_key.lock();
        let queues: Vec<_> = by_key.queues.values().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.turns().close());
        (queues, close())
    }

    /// The queues with callers.
    fn all(&self) -> Vec<Arc<WaitQueue>> {
        let Some(open) = self.open.get() else { return Vec::new() };
        let by_key = open.by_key.lock();
        by_key.queues.values().filter_map(Weak::upgrade).collect()
    }

    /// Wakes all callers, because units of every key were given back.
    pub(in crate::limiter) fn wake_all(&self) {
        self.all().iter().for_each(|queue| queue.signal().notify());
    }

    /// Units of a key were given back, so the first caller in its queue may ask again before its time.
    pub(in crate::limiter) fn units_freed(&self, plan: &Plan, key: &str) {
        if let Some(queue) = self.of_key(plan, key) {
            queue.signal().notify();
        }
    }
}
