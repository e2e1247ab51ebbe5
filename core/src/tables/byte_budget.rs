//! The bytes of all shards of a store together, and their bound.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A shard that changed by less is not counted again, because all threads share the count.
const MAX_STEP: usize = 16 << 10;

/// The bytes that a store may take, shared by its shards.
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    most: usize,
    /// A shard is counted again after a change of this many bytes.
    step: usize,
}

impl ByteBudget {
    pub(crate) fn new(most: usize, shards: usize) -> Self {
        let step = (most / (16 * shards)).min(MAX_STEP);
        Self { used: AtomicUsize::new(0), most: most - step * shards, step }
    }

    /// Counts the bytes of a shard now. It took `counted` bytes before.
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

    /// True if one of `shards` takes more than its part.
    pub(crate) const fn is_part_exceeded(&self, bytes: usize, shards: usize) -> bool {
        bytes > self.most / shards
    }
}
