//! A bounded table of what this process knows of keys: sharded, and full shards forget what matters least.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::store::request::Entry;

/// Shards of a table; more than the threads that ever run at once.
const SHARDS: usize = 64;
/// The most keys of a table.
const KEYS: usize = 65_536;
/// Entries looked at for the one that matters least.
const WEIGHED: usize = 8;

/// Something known of a key.
pub(super) trait Item {
    /// The hash of the policy and the key it is about.
    fn hash(&self) -> u64;
    /// Until when it is of use.
    fn until(&self) -> u64;
}

/// See the module.
pub(super) struct Table<T> {
    shards: Box<[Mutex<Shard<T>>]>,
    hasher: RandomState,
}

impl<T: Item> Default for Table<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }
}

impl<T: Item> Table<T> {
    #[inline]
    pub(super) fn hash(&self, entry: &Entry<'_>) -> u64 {
        // The identity is a digest already; the key is the caller's, so the hasher is seeded.
        self.hasher.hash_one(entry.key) ^ entry.plan.identity as u64
    }

    #[inline]
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<T>> {
        // The table uses the low bits and the top seven.
        self.shards[(hash >> 40) as usize % SHARDS].lock()
    }

    /// Does something with every shard.
    pub(super) fn each(&self, run: impl Fn(&mut Shard<T>)) {
        self.shards.iter().for_each(|shard| run(&mut shard.lock()));
    }

    /// Adds up something of every shard.
    pub(super) fn sum(&self, of: impl Fn(&Shard<T>) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.lock())).sum()
    }
}

pub(super) struct Shard<T> {
    numbers: HashTable<u32>,
    items: Vec<T>,
    hand: usize,
    /// How often something about its keys was changed.
    pub(super) changes: u64,
    /// How often it answered.
    pub(super) answers: u64,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self { numbers: HashTable::new(), items: Vec::new(), hand: 0, changes: 0, answers: 0 }
    }
}

impl<T: Item> Shard<T> {
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.numbers.find(hash, |number| is(&self.items[*number as usize])).map(|number| *number as usize)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &T {
        &self.items[index]
    }

    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut T {
        &mut self.items[index]
    }

    /// All of a hash that are wanted.
    pub(super) fn all(&self, hash: u64, is: impl Fn(&T) -> bool) -> Vec<usize> {
        let found = self.numbers.iter_hash(hash).map(|number| *number as usize);
        found.filter(|index| is(&self.items[*index])).collect()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.items.clear();
    }

    /// Keeps a newcomer; a full shard forgets another one for it.
    pub(super) fn insert(&mut self, item: T, now: u64) {
        if self.items.len() >= KEYS / SHARDS {
            let least = self.least(now);
            self.remove(least);
        }
        let items = &self.items;
        self.numbers.insert_unique(item.hash(), items.len() as u32, |number| items[*number as usize].hash());
        self.items.push(item);
    }

    /// The first of the next few that is of no use any more, else the one that is so soonest.
    fn least(&mut self, now: u64) -> usize {
        let mut least = self.hand;
        for _ in 0..WEIGHED {
            self.hand = if self.hand + 1 < self.items.len() { self.hand + 1 } else { 0 };
            if self.items.get(least).is_none_or(|item| self.items[self.hand].until() < item.until()) {
                least = self.hand;
            }
            if self.items[least].until() <= now {
                break;
            }
        }
        least
    }

    pub(super) fn remove(&mut self, at: usize) {
        if at >= self.items.len() {
            return;
        }
        let hash = self.items[at].hash();
        if let Ok(found) = self.numbers.find_entry(hash, |number| *number as usize == at) {
            found.remove();
        }
        self.items.swap_remove(at);
        if let Some(moved) = self.items.get(at) {
            let from = self.items.len();
            if let Some(number) = self.numbers.find_mut(moved.hash(), |number| *number as usize == from) {
                *number = at as u32;
            }
        }
    }

    /// Forgets all of a hash that are meant.
    pub(super) fn remove_all(&mut self, hash: u64, is: impl Fn(&T) -> bool) {
        while let Some(at) = self.find(hash, &is) {
            self.remove(at);
        }
    }
}
