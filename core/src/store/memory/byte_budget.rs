//! The bytes that all shards of a store take together, and how many they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::log::{Log, WarningKind};

/// A shard that has changed by less is not counted anew: the count is shared by all threads.
const MAX_STEP: usize = 16 << 10;

/// See the module.
pub(super) struct ByteBudget {
    used: AtomicUsize,
    most: usize,
    /// How much a shard may change before it is counted anew.
    step: usize,
}

impl ByteBudget {
    pub(super) fn new(most: usize, shards: usize) -> Self {
        let step = (most / (16 * shards)).min(MAX_STEP);
        Self { used: AtomicUsize::new(0), most: most - step * shards, step }
    }

    /// Counts what a shard takes now, where it took `counted` before.
    #[inline]
    pub(super) fn count(&self, bytes: usize, counted: &mut usize) {
        if bytes.abs_diff(*counted) >= self.step.max(1) {
            if bytes > *counted {
                self.used.fetch_add(bytes - *counted, Ordering::Relaxed);
            } else {
                self.used.fetch_sub(*counted - bytes, Ordering::Relaxed);
            }
            *counted = bytes;
        }
    }

    #[inline]
    pub(super) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.most
    }

    /// Whether one of `shards` has more than its part.
    pub(super) const fn is_part_exceeded(&self, bytes: usize, shards: usize) -> bool {
        bytes > self.most / shards
    }
}

/// Counts denials that were forgotten because the store was full, and says so once.
#[derive(Default)]
pub(crate) struct ForgottenDenials {
    count: AtomicU64,
    log: Arc<Log>,
}

impl ForgottenDenials {
    /// Of a store of its own.
    pub(crate) fn shared(log: &Arc<Log>) -> Arc<Self> {
        Arc::new(Self { count: AtomicU64::new(0), log: Arc::clone(log) })
    }

    #[cold]
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.log.warn_once(WarningKind::ForgottenDenial, || {
            "the memory store is full of keys that are being denied: max_bytes makes it forget the denial that ends \
             soonest, and admit its key before its time; give it more, as in memory://?max_bytes=4GB"
                .to_owned()
        });
    }

    pub(crate) fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
