//! The values that this process wrote last, so that the next check of a key can swap without a read.

use std::collections::HashMap;
use std::time::Instant;

use super::FoundValue;
use super::value::Mark;
use crate::store::stored_key::StoredKey;

/// The bounds of what is kept.
const MAX_KEYS: usize = 10_000;
const MAX_BYTES: usize = 16 << 20;
/// The bytes of a key beside its value.
const PER_KEY: usize = 256;

/// The value of a key, as far as a process knows it.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownValue {
    /// The version and the bytes of the value, `None` if there is none. It may have been replaced since.
    pub(super) found: Option<FoundValue>,
    /// The mark of the last value that this process wrote.
    pub(super) own: Option<Mark>,
    /// True if another process has written since.
    pub(super) is_shared: bool,
    /// True if the last write of this process took a lock, and other processes write too. Then the next one begins with it.
    pub(super) is_contended: bool,
    /// Until then this process leaves the key to others.
    pub(super) rests_until: Option<Instant>,
}

impl KnownValue {
    fn bytes(&self) -> usize {
        PER_KEY + self.found.as_ref().map_or(0, |found| found.data.len())
    }
}

#[derive(Debug, Default)]
pub(super) struct KnownValues {
    values: HashMap<StoredKey, KnownValue>,
    bytes: usize,
}

impl KnownValues {
    pub(super) fn get(&self, key: &StoredKey) -> Option<&KnownValue> {
        self.values.get(key)
    }

    pub(super) fn forget(&mut self, key: &StoredKey) {
        if let Some(known) = self.values.remove(key) {
            self.bytes -= known.bytes();
        }
    }

    /// Remembers a key. If there is no room, all others are forgotten: each costs its next check one read.
    pub(super) fn set(&mut self, key: StoredKey, known: KnownValue) {
        self.forget(&key);
        if self.values.len() >= MAX_KEYS || self.bytes + known.bytes() > MAX_BYTES {
            self.values.clear();
            self.bytes = 0;
        }
        if known.bytes() <= MAX_BYTES {
            self.bytes += known.bytes();
            self.values.insert(key, known);
        }
    }
}
