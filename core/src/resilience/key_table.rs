//! A bounded table of what this process knows about keys. It is sharded; a full shard drops the entry that is useful for
//! the shortest time.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::store::request::Entry;

/// Shards of a table: more than the threads that run at once.
const SHARDS: usize = 64;
/// The most entries of a table.
const CAPACITY: usize = 65_536;
/// Entries compared to find the one to drop.
const CANDIDATES: usize = 8;

/// What is known about a key.
pub(super) trait KeyEntry {
    /// The hash of the policy and the key it is about.
    fn hash(&self) -> u64;
    /// Until when it is useful.
    fn until(&self) -> u64;
}

/// See the module.
pub(super) struct KeyTable<T> {
    shards: Box<[Mutex<TableShard<T>>]>,
    hasher: RandomState,
}

impl<T: KeyEntry> Default for KeyTable<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }
}

impl<T: KeyEntry> KeyTable<T> {
    #[inline]
    pub(super) fn hash(&self, entry: &Entry<'_>) -> u64 {
        // The identity is a digest already; the key is the caller's, so the hasher is seeded.
        self.hasher.hash_one(entry.key) ^ entry.plan.identity as u64
    }

    #[inline]
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, TableShard<T>> {
        // The hash table of the shard uses the low bits and the top seven.
        self.shards[(hash >> 40) as usize % SHARDS].lock()
    }

    /// Runs for every shard.
    pub(super) fn each(&self, run: impl Fn(&mut TableShard<T>)) {
        self.shards.iter().for_each(|shard| run(&mut shard.lock()));
    }

    /// The sum of a number of every shard.
    pub(super) fn sum(&self, of: impl Fn(&TableShard<T>) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.lock())).sum()
    }
}

/// See the module.
pub(super) struct TableShard<T> {
    /// Indexes into `entries`, by hash.
    indexes: HashTable<u32>,
    entries: Vec<T>,
    /// Where the search for the entry to drop goes on.
    cursor: usize,
    /// How often usage of its keys was changed.
    pub(super) changes: u64,
    /// How often one of its entries gave an answer.
    pub(super) answers: u64,
}

impl<T> Default for TableShard<T> {
    fn default() -> Self {
        Self { indexes: HashTable::new(), entries: Vec::new(), cursor: 0, changes: 0, answers: 0 }
    }
}

impl<T: KeyEntry> TableShard<T> {
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.indexes.find(hash, |index| is(&self.entries[*index as usize])).map(|index| *index as usize)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &T {
        &self.entries[index]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.entries[index]
    }

    /// All entries of a hash that match.
    pub(super) fn all(&self, hash: u64, is: impl Fn(&T) -> bool) -> Vec<usize> {
        let found = self.indexes.iter_hash(hash).map(|index| *index as usize);
        found.filter(|index| is(&self.entries[*index])).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.indexes.clear();
        self.entries.clear();
    }

    /// Adds an entry; a full shard drops another one for it.
    pub(super) fn insert(&mut self, entry: T, now: u64) {
        if self.entries.len() >= CAPACITY / SHARDS {
            let victim = self.victim(now);
            self.remove(victim);
        }
        let entries = &self.entries;
        self.indexes.insert_unique(entry.hash(), entries.len() as u32, |index| entries[*index as usize].hash());
        self.entries.push(entry);
    }

    /// Among the next few entries the first that is no longer useful, else the one that is useful for the shortest time.
    fn victim(&mut self, now: u64) -> usize {
        let mut victim = self.cursor;
        for _ in 0..CANDIDATES {
            self.cursor = if self.cursor + 1 < self.entries.len() { self.cursor + 1 } else { 0 };
            if self.entries.get(victim).is_none_or(|entry| self.entries[self.cursor].until() < entry.until()) {
                victim = self.cursor;
            }
            if self.entries[victim].until() <= now {
                break;
            }
        }
        victim
    }

    pub(super) fn remove(&mut self, at: usize) {
        if at >= self.entries.len() {
            return;
        }
        let hash = self.entries[at].hash();
        if let Ok(found) = self.indexes.find_entry(hash, |index| *index as usize == at) {
            found.remove();
        }
        self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at) {
            let from = self.entries.len();
            if let Some(index) = self.indexes.find_mut(moved.hash(), |index| *index as usize == from) {
                *index = at as u32;
            }
        }
    }

    /// Removes all entries of a hash that match.
    pub(super) fn remove_all(&mut self, hash: u64, is: impl Fn(&T) -> bool) {
        while let Some(at) = self.find(hash, &is) {
            self.remove(at);
        }
    }
}
