//! An entry that outlives its call.

use std::sync::Arc;

use compact_str::CompactString;

use crate::plan::Plan;
use crate::store::{Entry, Operation};

/// See the module. Nearly every key is so short that it lies in place.
pub(crate) struct Owned {
    pub(crate) plan: Arc<Plan>,
    pub(crate) key: CompactString,
    pub(crate) operation: Operation,
}

impl Owned {
    /// Something else done with the same key.
    pub(crate) fn with(&self, operation: Operation) -> Entry<'_> {
        Entry { plan: &self.plan, key: &self.key, operation }
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        self.with(self.operation.clone())
    }
}

impl From<&Entry<'_>> for Owned {
    fn from(entry: &Entry<'_>) -> Self {
        Self { plan: Arc::clone(entry.plan), key: entry.key.into(), operation: entry.operation.clone() }
    }
}

pub(super) fn owned(entries: &[Entry<'_>]) -> Vec<Owned> {
    entries.iter().map(Owned::from).collect()
}

pub(super) fn borrowed(entries: &[Owned]) -> Vec<Entry<'_>> {
    entries.iter().map(Owned::entry).collect()
}
