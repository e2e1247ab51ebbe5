//! The bytes that all shards of a store take together, and how many they may.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A shard that has changed by less is not counted anew: the count is shared by all threads.
const MAX_STEP: usize = 16 << 10;

/// The bytes that a store may take, which its shards share.
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    most: usize,
    /// How much a shard may change before it is counted anew.
    step: usize,
}

impl ByteBudget {
    pub(crate) fn new(most: usize, shards: usize) -> Self {
        let step = (most / (16 * shards)).min(MAX_STEP);
        Self { used: AtomicUsize::new(0), most: most - step * shards, step }
    }

    /// Counts what a shard takes now, where it took `counted` before.
    #[inline]
    pub(crate) fn count(&self, bytes: usize, counted: &mut usize) {
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
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.most
    }

    /// Whether one of `shards` has more than its part.
    pub(crate) const fn is_part_exceeded(&self, bytes: usize, shards: usize) -> bool {
        bytes > self.most / shards
    }
}
