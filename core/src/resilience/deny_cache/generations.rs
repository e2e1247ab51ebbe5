//! Numbers that show if a denial may still be repeated.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::resilience::key_table::SHARDS;

/// A number for each shard of keys. It changes with each change of their usage, and denials from before are not
/// repeated. A host that repeats denials itself has copies of the numbers, and needs no call to check them.
///
/// A number modulo `COUNT` is the index of its shard.
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

    /// Copies all of them, if one has changed after the first `seen` changes.
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
