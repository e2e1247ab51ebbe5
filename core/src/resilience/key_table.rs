//! A table of the facts that this process knows about keys, bounded in entries and in bytes. It is sharded. A full
//! shard drops the entry that is useful for the shortest time. Later calls remove entries that are no longer useful.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::lock::{Mutex, MutexGuard};
use foldhash::fast::RandomState;

use crate::plan::Plan;
use crate::tables::hash_slab::{HashSlab, Hashed};
use crate::tables::table_key::{TableKey, TableKeyRef};

/// Shards of a table: more than the threads that run at once.
pub(super) const SHARDS: usize = 64;
/// The most entries of a table.
const MAX_ENTRIES: usize = 65_536;
/// The most bytes of a table.
const MAX_BYTES: usize = 32 << 20;
/// Entries compared to find the one to drop.
const CANDIDATES: usize = 8;
/// Entries that one sweep looks at …
const SWEPT: usize = 64;
/// … and the microseconds until the next one, if it removed few. Otherwise the next is due at once.
const SWEEP_INTERVAL: u64 = 2_000;

/// The key of an entry.
pub(super) struct KnownKey {
    /// The version of the policy that the entry belongs to.
    pub(super) plan: Arc<Plan>,
    pub(super) key: TableKey,
    hash: u64,
    /// The bytes that the entry has allocated. They change only within [`TableShard::change`].
    heap_bytes: u32,
}

impl KnownKey {
    pub(super) fn new(plan: &Arc<Plan>, key: TableKeyRef<'_>, hash: u64) -> Self {
        Self { plan: Arc::clone(plan), key: key.into(), hash, heap_bytes: 0 }
    }

    pub(super) fn is_of(&self, plan: &Plan, key: TableKeyRef<'_>) -> bool {
        self.plan.identity == plan.identity && self.key == key
    }

    /// Notes the bytes of its entry: those of the key, a share of the plan, and `others`.
    #[inline]
    pub(super) fn measure(&mut self, others: usize) {
        let heap_bytes = self.key.heap_bytes() + others + Plan::share(&self.plan);
        self.heap_bytes = u32::try_from(heap_bytes).unwrap_or(u32::MAX);
    }
}

/// The index of the shard of a hash. The hash table of the shard uses the low bits and the top seven.
#[inline]
pub(super) const fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// An entry of a table, about one key.
pub(super) trait KeyEntry {
    fn known(&self) -> &KnownKey;

    /// The time until which it is useful.
    fn until(&self) -> u64;
}

impl<T: KeyEntry> Hashed for T {
    type Hasher = ();

    #[inline]
    fn hash(&self, (): &()) -> u64 {
        self.known().hash
    }
}

/// A table of keys, in shards that are locked one by one.
pub(super) struct KeyTable<T: KeyEntry> {
    shards: Box<[Mutex<TableShard<T>>]>,
    hasher: RandomState,
    /// When the next sweep is due.
    sweep_at: AtomicU64,
    sweeps: AtomicU64,
}

impl<T: KeyEntry> Default for KeyTable<T> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            sweep_at: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
        }
    }
}

impl<T: KeyEntry> KeyTable<T> {
    #[inline]
    pub(super) fn hash(&self, plan: &Plan, key: TableKeyRef<'_>) -> u64 {
        key.hash_for(plan.identity, &self.hasher)
    }

    #[inline]
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, TableShard<T>> {
        self.shards[shard_of(hash)].lock()
    }

    /// The place of a key, in its shard.
    #[inline]
    pub(super) fn place(&self, plan: &Plan, key: TableKeyRef<'_>) -> KeyPlace<'_, T> {
        let hash = self.hash(plan, key);
        let shard = self.shard(hash);
        KeyPlace { index: shard.find(hash, |entry| entry.known().is_of(plan, key)), shard, hash }
    }

    /// Runs for every shard.
    pub(super) fn each(&self, mut run: impl FnMut(&mut TableShard<T>)) {
        self.shards.iter().for_each(|shard| run(&mut shard.lock()));
    }

    /// The sum of a number of every shard.
    pub(super) fn sum(&self, of: impl Fn(&TableShard<T>) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(&shard.lock())).sum()
    }

    /// Removes a few entries that are no longer useful, if the last time is long enough ago. `now` is a time that does
    /// not run backwards.
    #[inline]
    pub(super) fn sweep_if_due(&self, now: u64) {
        if now >= self.sweep_at.load(Ordering::Relaxed) {
            self.sweep(now);
        }
    }

    #[cold]
    fn sweep(&self, now: u64) {
        self.sweep_at.store(now + SWEEP_INTERVAL, Ordering::Relaxed);
        let number = self.sweeps.fetch_add(1, Ordering::Relaxed) as usize;
        // A shard that is in use is swept in the next round.
        if let Some(mut shard) = self.shards[number % SHARDS].try_lock() {
            let before = shard.slab.len();
            shard.sweep(now);
            if before - shard.slab.len() > SWEPT / 2 {
                self.sweep_at.store(now, Ordering::Relaxed);
            }
        }
    }
}

/// The place of a key in a table, as long as its shard is locked.
pub(super) struct KeyPlace<'a, T: KeyEntry> {
    pub(super) shard: MutexGuard<'a, TableShard<T>>,
    pub(super) hash: u64,
    /// The index of its entry, if there is one.
    pub(super) index: Option<usize>,
}

impl<T: KeyEntry> KeyPlace<'_, T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.index.map(|index| self.shard.get(index))
    }

    /// Changes the entry, if there is one.
    #[inline]
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.index.map(|index| self.shard.change(index, change))
    }
}

/// The entries of a part of the keys, which one lock protects.
pub(super) struct TableShard<T: KeyEntry> {
    slab: HashSlab<T>,
    /// The bytes of its entries.
    bytes: usize,
    /// How often one of its entries gave an answer.
    pub(super) answers: u64,
}

impl<T: KeyEntry> Default for TableShard<T> {
    fn default() -> Self {
        Self { slab: HashSlab::new(()), bytes: 0, answers: 0 }
    }
}

/// The bytes of an entry with its place in the table.
fn bytes<T: KeyEntry>(entry: &T) -> usize {
    HashSlab::<T>::ITEM_BYTES + entry.known().heap_bytes as usize
}

impl<T: KeyEntry> TableShard<T> {
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.slab.find(hash, is)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &T {
        self.slab.get(index)
    }

    /// Changes an entry, and counts its bytes anew.
    #[inline]
    pub(super) fn change<R>(&mut self, index: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let entry = self.slab.get_mut(index);
        let before = entry.known().heap_bytes;
        let result = change(entry);
        self.bytes = self.bytes + entry.known().heap_bytes as usize - before as usize;
        result
    }

    /// All entries of a hash that match.
    pub(super) fn all(&self, hash: u64, is: impl Fn(&T) -> bool) -> Vec<usize> {
        self.slab.all(hash, is)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.slab.len() as u64
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(super) fn clear(&mut self) {
        self.slab.clear();
        self.bytes = 0;
    }

    /// Takes all entries.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.slab.take()
    }

    fn is_full(&self) -> bool {
        self.slab.len() >= MAX_ENTRIES / SHARDS || self.bytes > MAX_BYTES / SHARDS
    }

    /// Adds an entry, unless that would drop another one that is still useful. True if it was added.
    pub(super) fn insert_if_room(&mut self, entry: T, now: u64) -> bool {
        self.bytes += bytes(&entry);
        if self.is_full() {
            self.sweep(now);
        }
        if self.is_full() {
            self.bytes -= bytes(&entry);
            return false;
        }
        self.slab.insert(entry.known().hash, entry);
        true
    }

    /// Adds an entry. A full shard drops others for it.
    pub(super) fn insert(&mut self, entry: T, now: u64) {
        self.bytes += bytes(&entry);
        while self.is_full() {
            let Some(victim) = self.victim(now) else { break };
            self.remove(victim);
        }
        self.slab.insert(entry.known().hash, entry);
    }

    /// Among the next few entries, the first that is no longer useful, else the one that is useful for the shortest time.
    fn victim(&mut self, now: u64) -> Option<usize> {
        let mut victim: Option<usize> = None;
        for _ in 0..CANDIDATES {
            let at = self.slab.advance()?;
            let until = self.get(at).until();
            if victim.is_none_or(|victim| until < self.get(victim).until()) {
                victim = Some(at);
            }
            if until <= now {
                break;
            }
        }
        victim
    }

    fn sweep(&mut self, now: u64) {
        for _ in 0..SWEPT.min(self.slab.len()) {
            match self.slab.advance() {
                Some(at) if self.get(at).until() <= now => self.remove(at),
                _ => {}
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.bytes -= bytes(&self.slab.remove(at));
    }

    /// Removes all entries of a hash that match.
    pub(super) fn remove_all(&mut self, hash: u64, is: impl Fn(&T) -> bool) {
        while let Some(at) = self.find(hash, &is) {
            self.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;

    struct TestEntry {
        known: KnownKey,
        until: u64,
    }

    impl KeyEntry for TestEntry {
        fn known(&self) -> &KnownKey {
            &self.known
        }

        fn until(&self) -> u64 {
            self.until
        }
    }

    fn flood(table: &KeyTable<TestEntry>, entries: u64, heap_bytes: usize) {
        let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
        for number in 0..entries {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut known = KnownKey::new(&plan, TableKeyRef::of("k"), hash);
            known.heap_bytes = heap_bytes as u32;
            table.shard(hash).insert(TestEntry { known, until: 1_000 + number }, 0);
        }
    }

    #[test]
    fn a_table_stays_within_its_entries_and_its_bytes_and_gives_back_what_is_over() {
        for (heap_bytes, most) in [(0, MAX_ENTRIES), (5_000, MAX_BYTES / 5_000), (10 * MAX_BYTES, SHARDS)] {
            let table = KeyTable::default();
            flood(&table, 200_000, heap_bytes);
            let (len, bytes) = (table.sum(TableShard::len), table.sum(TableShard::bytes));
            assert!(len <= most as u64 && len >= most as u64 / 2, "{len} entries of {heap_bytes} bytes");
            assert!(bytes <= MAX_BYTES as u64 || heap_bytes > MAX_BYTES, "{bytes} bytes");
            // Changes are counted.
            table.each(|shard| {
                shard.change(0, |entry| entry.known.heap_bytes /= 2);
            });
            assert_eq!(table.sum(TableShard::bytes), bytes - SHARDS as u64 * (heap_bytes as u64 / 2));
            let sweeps = SHARDS as u64 * (MAX_ENTRIES / SHARDS / SWEPT + 1) as u64;
            for sweep in 0..sweeps {
                // Nothing before its time.
                table.sweep_if_due(sweep * SWEEP_INTERVAL / sweeps);
            }
            assert_eq!(table.sum(TableShard::len), len);
            for sweep in 0..sweeps {
                table.sweep_if_due(1_000_000 + sweep * SWEEP_INTERVAL);
            }
            assert_eq!((table.sum(TableShard::len), table.sum(TableShard::bytes)), (0, 0));
        }
    }
}
