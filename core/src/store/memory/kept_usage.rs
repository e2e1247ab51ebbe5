//! A usage in the table of its shard.

use foldhash::fast::RandomState;

use crate::plan::Plan;
use crate::store::request::Entry;
use crate::store::usage::Usage;
use crate::tables::hash_slab::{HashSlab, Hashed};
use crate::tables::table_key::{TableKey, TableKeyRef};

/// A usage with its key, in this order.
#[repr(C)]
pub(super) struct KeptUsage {
    key: TableKey,
    pub(super) usage: Usage,
}

const _: () = assert!(size_of::<KeptUsage>() <= 88, "a usage has grown");

/// The hash is not stored, because a table of many keys rarely needs it.
impl Hashed for KeptUsage {
    type Hasher = RandomState;

    fn hash(&self, hasher: &RandomState) -> u64 {
        self.key.as_ref().hash_for(self.usage.identity(), hasher)
    }
}

impl KeptUsage {
    #[inline]
    pub(super) fn new(entry: &Entry<'_>) -> Self {
        Self { key: TableKey::of(entry.key), usage: Usage::new(entry.plan) }
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
