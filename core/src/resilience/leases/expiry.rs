//! One thread gives back the rest of the blocks that have expired. It starts with the first block and ends with the
//! limiter. With a clock that is moved by hand there is no thread: the thread that moves the clock does it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::process::lock::{Condvar, Mutex};
use compact_str::CompactString;

use super::Leases;
use crate::plan::Plan;
use crate::process::fork::PerProcess;

/// The longest key that is kept as text. The rest of a block with a longer key stays charged.
const MAX_KEY: usize = 64;
/// The most blocks with a known end. The rest of any other block stays charged.
const MAX_ENDS: usize = 65_536;
/// Microseconds that the thread sleeps beyond the end of a block, so that blocks that end together are given back together.
const GRACE: u64 = 1_000;

/// The key of a block that ends.
pub(super) struct BlockEnd {
    pub(super) plan: Arc<Plan>,
    pub(super) key: CompactString,
}

/// Ends the blocks that have expired.
#[derive(Default)]
pub(super) struct Expiry {
    shared: PerProcess<SharedEnds>,
}

type SharedEnds = (Mutex<BlockEnds>, Condvar);

#[derive(Default)]
struct BlockEnds {
    running: bool,
    stopped: bool,
    /// By the time when they end, and by their number.
    ends: BTreeMap<(u64, u64), BlockEnd>,
    /// How many were added.
    added: u64,
}

impl BlockEnds {
    /// When the first block ends.
    fn first(&self) -> Option<u64> {
        self.ends.first_key_value().map(|((until, _), _)| *until)
    }
}

impl Expiry {
    pub(super) fn add(&self, until: u64, end: BlockEnd, leases: &Weak<Leases>, by_hand: bool) {
        if end.key.len() > MAX_KEY {
            return;
        }
        let Ok(shared) = self.shared.get_or_try_init(|| Ok(SharedEnds::default())) else { return };
        let (schedule, changed) = &**shared;
        let mut schedule = schedule.lock();
        if schedule.stopped || schedule.ends.len() >= MAX_ENDS {
            return;
        }
        let is_first = schedule.first().is_none_or(|first| until < first);
        schedule.added += 1;
        let number = schedule.added;
        schedule.ends.insert((until, number), end);
        if !schedule.running && !by_hand {
            let leases = Weak::clone(leases);
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("tidegate-leases".to_owned());
            // Without the thread the rest stays charged until it leaves the window.
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
        let first = schedule.ends.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn stop(&self) {
        if let Some(shared) = self.shared.get() {
            let mut schedule = shared.0.lock();
            (schedule.stopped, schedule.ends) = (true, BTreeMap::new());
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
        let schedule = schedule.lock();
        if schedule.stopped {
            return;
        }
        // Read under the lock, because a block that was added meanwhile may end before all others.
        match schedule.first() {
            Some(until) => {
                let pause = Duration::from_micros(until.saturating_sub(now) + GRACE);
                drop(changed.wait_until(schedule, Instant::now() + pause));
            }
            None => drop(changed.wait(schedule)),
        }
    }
}
