//! What says that a denial may not be repeated any more.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::resilience::key_table::SHARDS;

/// A number for each shard of keys, which is another one after each change of their usage: what was answered before is not
/// repeated. A host that repeats denials by itself has copies of them, and needs no call to know.
///
/// The remainder of a number by their count says of which shard it is.
#[derive(Debug)]
pub(crate) struct DenialGenerations {
    numbers: [AtomicU32; SHARDS],
    /// How often one of them has changed.
    changes: AtomicU32,
}

impl Default for DenialGenerations {
    fn default() -> Self {
        Self { numbers: std::array::from_fn(|shard| AtomicU32::new(shard as u32)), changes: AtomicU32::new(0) }
    }
}

impl DenialGenerations {
    /// How many there are.
    pub(crate) const COUNT: usize = SHARDS;

    #[inline]
    pub(super) fn of(&self, shard: usize) -> u32 {
        self.numbers[shard].load(Ordering::Relaxed)
    }

    /// Ends the denials of a shard.
    pub(super) fn end(&self, shard: usize) {
        self.numbers[shard].fetch_add(SHARDS as u32, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Writes all of them, where one has changed since the `seen` changes.
    #[inline]
    pub(crate) fn copy(&self, seen: &mut u32, copies: &mut [f64]) {
        let changes = self.changes.load(Ordering::Acquire);
        if *seen != changes {
            *seen = changes;
            copies
                .iter_mut()
                .zip(&self.numbers)
                .for_each(|(copy, number)| *copy = number.load(Ordering::Relaxed).into());
        }
    }
}
