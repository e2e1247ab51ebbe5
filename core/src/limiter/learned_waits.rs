//! The times until which other sides refuse calls, as far as this process has heard.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

const MOMENTS: usize = 64;

/// The ends of waits that answers of the store have named. Several keys share a moment, which is the latest of theirs.
/// So a caller that finds one asks the store.
pub(crate) struct LearnedWaits([AtomicU64; MOMENTS]);

impl Default for LearnedWaits {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; MOMENTS])
    }
}

impl LearnedWaits {
    fn moment(&self, key: &str) -> &AtomicU64 {
        &self.0[FixedState::default().hash_one(key) as usize % MOMENTS]
    }

    /// Notes that calls of a key are refused until then.
    pub(super) fn heard(&self, key: &str, until: u64) {
        self.moment(key).fetch_max(until, Ordering::Relaxed);
    }

    /// True if calls of a key may be refused since `at`, a moment of the store when they were not.
    pub(super) fn may_have_begun_since(&self, key: &str, at: u64) -> bool {
        self.moment(key).load(Ordering::Relaxed) > at
    }
}
