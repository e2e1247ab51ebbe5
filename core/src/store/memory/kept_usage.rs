//! A usage in the table of its shard.

use crate::plan::Plan;
use crate::store::request::Entry;
use crate::store::usage::Usage;
use crate::tables::hash_slab::{HashSlab, Hashed};
use crate::tables::table_key::{TableKey, TableKeyRef};

/// A usage with its key.
pub(super) struct KeptUsage {
    key: TableKey,
    pub(super) hash: u64,
    pub(super) usage: Usage,
}

const _: () = assert!(size_of::<KeptUsage>() <= 96, "a usage has grown");

impl Hashed for KeptUsage {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl KeptUsage {
    #[inline]
    pub(super) fn new(entry: &Entry<'_>, hash: u64) -> Self {
        Self { key: TableKey::of(entry.key), hash, usage: Usage::new(entry.plan) }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, plan: &Plan, key: TableKeyRef<'_>) -> bool {
        self.usage.is_of(plan) && self.key == key
    }

    /// Takes the usage out.
    pub(super) fn take(&mut self, plan: &Plan) -> Usage {
        std::mem::replace(&mut self.usage, Usage::new(plan))
    }

    /// The bytes that it takes with its place in the shard.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        HashSlab::<Self>::ITEM_BYTES + self.key.heap_bytes() + self.usage.heap_bytes()
    }
}
