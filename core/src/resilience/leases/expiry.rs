//! One thread gives back what is left of blocks whose time is over. It starts with the first block and ends with the limiter. With
//! a clock that is moved by hand there is no thread: the thread that moves the clock does it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use compact_str::CompactString;
use parking_lot::{Condvar, Mutex};

use super::Leases;
use crate::plan::Plan;
use crate::process::fork::PerProcess;

/// The longest key of which a text is kept: what is left of a longer one stays charged.
const MAX_KEY: usize = 64;
/// The most blocks that are known to end. What is left of others stays charged.
const MAX_ENDS: usize = 65_536;
/// Microseconds that the thread sleeps beyond the end of a block, so that blocks that end together are given back together.
const GRACE: u64 = 1_000;

/// When a block of a key ends.
pub(super) struct BlockEnd {
    until: u64,
    pub(super) plan: Arc<Plan>,
    pub(super) key: CompactString,
}

impl BlockEnd {
    pub(super) fn new(until: u64, plan: &Arc<Plan>, key: &CompactString) -> Self {
        Self { until, plan: Arc::clone(plan), key: key.clone() }
    }
}

impl PartialEq for BlockEnd {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for BlockEnd {}

impl PartialOrd for BlockEnd {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BlockEnd {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}

/// Ends the blocks whose time is over.
#[derive(Default)]
pub(super) struct Expiry {
    shared: PerProcess<SharedEnds>,
}

type SharedEnds = (Mutex<BlockEnds>, Condvar);

#[derive(Default)]
struct BlockEnds {
    running: bool,
    stopped: bool,
    ends: BinaryHeap<Reverse<BlockEnd>>,
}

impl Expiry {
    pub(super) fn add(&self, end: BlockEnd, leases: &Weak<Leases>, by_hand: bool) {
        if end.key.len() > MAX_KEY {
            return;
        }
        let Ok(shared) = self.shared.get_or_try_init(|| Ok(SharedEnds::default())) else { return };
        let (schedule, changed) = &**shared;
        let mut schedule = schedule.lock();
        if schedule.stopped || schedule.ends.len() >= MAX_ENDS {
            return;
        }
        let is_first = schedule.ends.peek().is_none_or(|first| end.until < first.0.until);
        schedule.ends.push(Reverse(end));
        if !schedule.running && !by_hand {
            let (leases, shared) = (Weak::clone(leases), Arc::clone(&shared));
            let thread = std::thread::Builder::new().name("tidegate-leases".to_owned());
            // Without the thread what is left stays charged until it leaves the window.
            schedule.running = thread.spawn(move || run(&leases, &shared)).is_ok();
        }
        if is_first {
            changed.notify_one();
        }
    }

    /// The first block that has ended by `now`.
    pub(super) fn pop(&self, now: u64) -> Option<BlockEnd> {
        let shared = self.shared.get()?;
        let mut schedule = shared.0.lock();
        let first = schedule.ends.peek()?;
        if first.0.until > now {
            return None;
        }
        schedule.ends.pop().map(|first| first.0)
    }

    pub(super) fn stop(&self) {
        if let Some(shared) = self.shared.get() {
            let mut schedule = shared.0.lock();
            (schedule.stopped, schedule.ends) = (true, BinaryHeap::new());
            shared.1.notify_one();
        }
    }
}

fn run(leases: &Weak<Leases>, (schedule, changed): &SharedEnds) {
    while let Some(leases) = leases.upgrade() {
        leases.expire();
        let now = leases.time();
        // The thread does not keep the limiter alive while it sleeps.
        drop(leases);
        let mut schedule = schedule.lock();
        if schedule.stopped {
            return;
        }
        // Looked at behind the lock: a block that was added meanwhile may end before all others.
        match schedule.ends.peek().map(|first| first.0.until) {
            Some(until) => {
                changed.wait_for(&mut schedule, Duration::from_micros(until.saturating_sub(now) + GRACE));
            }
            None => changed.wait(&mut schedule),
        }
    }
}
