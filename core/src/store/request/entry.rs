//! An operation on a key, for its call and beyond it.

use std::sync::Arc;

use compact_str::CompactString;

use super::Operation;
use crate::plan::Plan;

/// One operation on one key of one policy.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) plan: &'a Arc<Plan>,
    pub(crate) key: &'a str,
    pub(crate) operation: Operation,
}

/// An entry that outlives its call. Nearly every key is short enough to be stored inline.
pub(crate) struct OwnedEntry {
    pub(crate) plan: Arc<Plan>,
    pub(crate) key: CompactString,
    pub(crate) operation: Operation,
}

impl OwnedEntry {
    /// Another operation on the same key.
    pub(crate) fn with(&self, operation: Operation) -> Entry<'_> {
        Entry { plan: &self.plan, key: &self.key, operation }
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        self.with(self.operation.clone())
    }
}

impl From<&Entry<'_>> for OwnedEntry {
    fn from(entry: &Entry<'_>) -> Self {
        Self { plan: Arc::clone(entry.plan), key: entry.key.into(), operation: entry.operation.clone() }
    }
}

/// Copies of entries that outlive their call.
pub(crate) fn owned(entries: &[Entry<'_>]) -> Vec<OwnedEntry> {
    entries.iter().map(OwnedEntry::from).collect()
}

pub(crate) fn borrowed(entries: &[OwnedEntry]) -> Vec<Entry<'_>> {
    entries.iter().map(OwnedEntry::entry).collect()
}
