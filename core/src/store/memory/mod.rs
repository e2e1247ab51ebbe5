//! The memory store: in this process, sharded, bounded in keys and in bytes.
//!
//! A shard is a vector of usages and a table of their indexes. No thread and no timer removes expired usages. Instead
//! each addition looks at a few others, and so does any call now and then. A full shard removes the usage that expires
//! first among the next few. It does not remove a usage that is denying its key: the shard grows instead, until the
//! store has as many bytes as it may.

mod check_all;
mod kept_usage;
mod override_table;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::process::lock::{InheritedMutex, MutexGuard};
use foldhash::fast::RandomState;

use super::call_context::CallContext;
use super::layer_states::LayerStates;
use super::request::{Answer, ChangedOverride, Entry, Operation, SimpleAnswer, States};
use super::usage::{Resumed, unstored};
use super::{ForgottenDenials, Store};
use crate::algorithm::Rule;
use crate::error::Result;
use crate::plan::Plan;
use crate::process::clock::SteadyClock;
use crate::store::url::MemoryBounds;
use crate::tables::byte_budget::ByteBudget;
use crate::tables::table_key::TableKeyRef;
use kept_usage::KeptUsage;
use override_table::OverrideTable;
use shard::{Evicted, MemoryShard};

/// Usages that one addition checks for expiry.
const SWEPT: usize = 2;
/// Usages that one sweep checks.
const SWEPT_AT_ONCE: usize = 64;
/// Microseconds until the next sweep, if little had expired. Otherwise it is due at once.
const SWEEP_INTERVAL: u64 = 1_000;
/// The most shards: more than the threads that run at once.
const MAX_SHARDS: usize = 64;
/// The least capacity of a shard in keys.
const MIN_SHARD_CAPACITY: usize = 256;
/// The least capacity of a shard in bytes.
const MIN_SHARD_BYTES: usize = 64 << 10;

/// A store in this process.
pub(crate) struct Memory {
    shards: Box<[InheritedMutex<MemoryShard>]>,
    hasher: RandomState,
    shard_capacity: usize,
    clock: SteadyClock,
    /// When the next sweep is due.
    sweep_at: AtomicU64,
    sweeps: AtomicUsize,
    budget: ByteBudget,
    forgotten_denials: Arc<ForgottenDenials>,
    /// The overrides of keys. Without them every call keeps the numbers that it brings.
    overrides: Option<OverrideTable>,
}

impl Memory {
    pub(crate) fn new(bounds: MemoryBounds, forgotten_denials: Arc<ForgottenDenials>) -> Self {
        let MemoryBounds { max_keys, max_bytes } = bounds;
        let shards = (max_keys / MIN_SHARD_CAPACITY).min(max_bytes / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let shards = shards.next_power_of_two();
        let hasher = RandomState::default();
        Self {
            shards: (0..shards).map(|_| InheritedMutex::new(MemoryShard::new(hasher.clone()))).collect(),
            hasher,
            shard_capacity: max_keys.div_ceil(shards).max(1),
            clock: SteadyClock::default(),
            sweep_at: AtomicU64::new(0),
            sweeps: AtomicUsize::new(0),
            budget: ByteBudget::new(max_bytes, shards),
            forgotten_denials,
            overrides: None,
        }
    }

    /// A store that also keeps the overrides of keys.
    pub(crate) fn with_overrides(bounds: MemoryBounds, forgotten_denials: Arc<ForgottenDenials>) -> Self {
        Self { overrides: Some(OverrideTable::new(bounds.max_bytes)), ..Self::new(bounds, forgotten_denials) }
    }

    /// Warns of forgotten denials. Call it without a lock.
    #[inline]
    fn report(&self) {
        self.forgotten_denials.report(|| {
            if self.overrides.is_some() {
                ("the memory store".to_owned(), "give it more, as in memory://?max_bytes=4GB")
            } else {
                let what = "the memory in which this process limits while its store is lost";
                (what.to_owned(), "on_store_error: closed denies every key meanwhile")
            }
        });
    }

    /// The answer to a call that is not made, because it brings other numbers than its key has.
    #[inline(always)]
    fn changed_override(&self, entry: &Entry<'_>, now: u64) -> Option<Answer> {
        let overrides = self.overrides.as_ref()?;
        if overrides.concern(entry.plan) { self.compared(overrides, entry, now) } else { None }
    }

    #[cold]
    fn compared(&self, overrides: &OverrideTable, entry: &Entry<'_>, now: u64) -> Option<Answer> {
        let text = overrides.other_than(entry.plan, entry.key, now)?;
        match entry.operation {
            Operation::Clear | Operation::Journal => None,
            _ => Some(Answer::not_made(ChangedOverride::To(text), now)),
        }
    }

    /// The time to decide by, and how many usages an addition sweeps. A time from the caller may run backwards. So
    /// usages that have expired by it stay until a shard is full, as they would in Redis.
    #[inline]
    fn time(&self, given: Option<u64>) -> (u64, usize) {
        given.map_or_else(
            || {
                let now = self.clock.micros();
                if now >= self.sweep_at.load(Ordering::Relaxed) {
                    self.sweep(now);
                }
                (now, SWEPT)
            },
            |now| (now, 0),
        )
    }

    /// Removes expired usages of one shard, so that calls about other keys free the memory of unused keys.
    #[cold]
    fn sweep(&self, now: u64) {
        self.sweep_at.store(now + SWEEP_INTERVAL, Ordering::Relaxed);
        let number = self.sweeps.fetch_add(1, Ordering::Relaxed);
        // A shard that is in use is swept in the next round.
        if let Some(mut shard) = self.try_lock(&self.shards[number & (self.shards.len() - 1)]) {
            if shard.sweep(now, SWEPT_AT_ONCE) > SWEPT_AT_ONCE / 2 {
                self.sweep_at.store(now, Ordering::Relaxed);
            }
            self.count(&mut shard);
        }
    }

    /// Counts the bytes of a shard.
    #[inline]
    fn count(&self, shard: &mut MemoryShard) {
        self.budget.count(shard.bytes, &mut shard.counted);
    }

    /// Called after the usage of a hash was added, or has grown.
    #[inline]
    fn keep_within_budget(&self, shard: &mut MemoryShard, now: u64, hash: u64) {
        self.count(shard);
        if self.budget.is_exceeded() {
            self.make_room(shard, now, hash);
        }
    }

    /// Removes usages until the store has no more bytes than it may. They are removed from a shard that has more than
    /// its part, so that one key with much state does not push out all others of its shard.
    #[cold]
    fn make_room(&self, shard: &mut MemoryShard, now: u64, spared: u64) {
        let count = self.shards.len();
        while self.budget.is_exceeded() {
            let evicted = if self.budget.is_part_exceeded(shard.bytes, count) {
                self.evict(shard, now, spared)
            } else {
                // Do not wait for the locks of others here: another call may hold one and wait for this one.
                let mut others = self.shards.iter().filter_map(|shard| self.try_lock(shard));
                let larger = others.find(|other| self.budget.is_part_exceeded(other.bytes, count));
                larger.map_or_else(|| self.evict(shard, now, spared), |mut other| self.evict(&mut other, now, spared))
            };
            if !evicted {
                break;
            }
        }
    }

    fn evict(&self, shard: &mut MemoryShard, now: u64, spared: u64) -> bool {
        let evicted = shard.evict(now, spared);
        if evicted == Some(Evicted::Denial) {
            self.forgotten_denials.add();
        }
        self.count(shard);
        evicted.is_some()
    }

    #[inline]
    fn hash(&self, plan: &Plan, key: TableKeyRef<'_>) -> u64 {
        key.hash_for(plan.identity, &self.hasher)
    }

    /// A shard that another thread was changing when this process was forked begins anew.
    #[inline(always)]
    fn lock(&self, shard: usize) -> MutexGuard<'_, MemoryShard> {
        self.shards[shard].lock_or(|| MemoryShard::new(self.hasher.clone()))
    }

    fn try_lock<'a>(&self, shard: &'a InheritedMutex<MemoryShard>) -> Option<MutexGuard<'a, MemoryShard>> {
        shard.try_lock_or(|| MemoryShard::new(self.hasher.clone()))
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // The hash table of the shard uses the low bits and the top seven.
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    /// Carries out an operation, at that time or else at the time of the process.
    #[inline(always)]
    pub(crate) fn answer(&self, entry: &Entry<'_>, given: Option<u64>) -> Answer {
        let (now, swept) = self.time(given);
        if let Some(answer) = self.changed_override(entry, now) {
            return answer;
        }
        let key = TableKeyRef::of(entry.key);
        let hash = self.hash(entry.plan, key);
        let mut shard = self.lock(self.shard_of(hash));
        let now = given.unwrap_or_else(|| shard.moment(now));
        let index = shard.find(hash, entry.plan, key);
        if let Some(answer) = index.and_then(|index| shard.get_mut(index).try_simple_call(entry, now)) {
            return answer.into();
        }
        let answer = self.run_in(&mut shard, index, hash, entry, now, swept);
        drop(shard);
        self.report();
        answer
    }

    /// Every call but the simplest check.
    #[inline(never)]
    fn run_in(
        &self,
        shard: &mut MemoryShard,
        index: Option<usize>,
        hash: u64,
        entry: &Entry<'_>,
        now: u64,
        swept: usize,
    ) -> Answer {
        if let Some(index) = index {
            let answer = shard.change(index, |usage| usage.apply(entry, now));
            self.keep_within_budget(shard, now, hash);
            return answer;
        }
        let mut kept = KeptUsage::new(entry);
        let usage = &mut kept.usage;
        let simple = usage.try_simple_call(entry, now);
        if simple.is_none() && !unstored::may_store(entry, now) {
            return unstored::answer(entry, now);
        }
        let answer = simple.map_or_else(|| usage.apply(entry, now), Answer::from);
        if usage.is_live(now) {
            shard.insert(hash, kept, now, self.shard_capacity, swept);
            self.keep_within_budget(shard, now, hash);
        }
        answer
    }

    /// Goes on counting with the new numbers of a key.
    fn adopt(&self, entry: &Entry<'_>, now: u64) {
        let key = TableKeyRef::of(entry.key);
        let hash = self.hash(entry.plan, key);
        let mut shard = self.lock(self.shard_of(hash));
        if let Some(index) = shard.find(hash, entry.plan, key) {
            shard.change(index, |usage| usage.adopt_numbers(entry.plan, now));
            self.keep_within_budget(&mut shard, now, hash);
        }
    }

    /// The stored states of a key, as this version of its policy reads them, bounded in size.
    pub(crate) fn states(&self, entry: &Entry<'_>, now: u64) -> States {
        let key = TableKeyRef::of(entry.key);
        let hash = self.hash(entry.plan, key);
        let mut shard = self.lock(self.shard_of(hash));
        match shard.find(hash, entry.plan, key) {
            Some(index) => shard.change(index, |usage| usage.bounded_states(entry.plan, now)),
            None => entry.plan.rules.iter().map(Rule::fresh).collect(),
        }
    }

    /// Stores states that are known from elsewhere, in place of the stored ones. The time is that of the key. Other
    /// keys may have another clock, so nothing is swept by it.
    pub(crate) fn put(&self, entry: &Entry<'_>, states: States, resumed: Resumed, now: u64) {
        let key = TableKeyRef::of(entry.key);
        let hash = self.hash(entry.plan, key);
        let mut kept = KeptUsage::new(entry);
        kept.usage.resume(states.into_iter().collect(), resumed);
        kept.usage.refresh_expiry(entry.plan, now);
        let mut shard = self.lock(self.shard_of(hash));
        if let Some(index) = shard.find(hash, entry.plan, key) {
            shard.remove(index);
        }
        if kept.usage.is_live(now) {
            shard.insert(hash, kept, now, self.shard_capacity, 0);
        }
        self.keep_within_budget(&mut shard, now, hash);
        drop(shard);
        self.report();
    }
}

impl Store for Memory {
    #[inline]
    fn try_simple_check(
        &self,
        plan: &Plan,
        key: &str,
        cost: u64,
        given: Option<u64>,
        answer: &mut SimpleAnswer,
    ) -> bool {
        if self.overrides.as_ref().is_some_and(|overrides| overrides.concern(plan)) {
            return false;
        }
        let (now, _) = self.time(given);
        let key = TableKeyRef::of(key);
        let hash = self.hash(plan, key);
        let mut shard = self.lock(self.shard_of(hash));
        let now = given.unwrap_or_else(|| shard.moment(now));
        let index = shard.find(hash, plan, key);
        index.is_some_and(|index| shard.get_mut(index).try_simple_check(plan, cost, now, answer))
    }

    #[inline]
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, _: &mut LayerStates) -> Option<Result<Answer>> {
        Some(Ok(self.answer(entry, context.now)))
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        _: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        let (now, swept) = self.time(context.now);
        let changed: Vec<Option<Answer>> = entries.iter().map(|entry| self.changed_override(entry, now)).collect();
        if changed.iter().any(Option::is_some) {
            return Some(Ok(Answer::all_changed(changed, now)));
        }
        let answers = self.check_all(entries, |_| now, swept);
        self.report();
        Some(Ok(answers))
    }

    fn ping(&self, _: Option<Instant>) -> Result<()> {
        Ok(())
    }

    fn clear_all(&self) -> Result<()> {
        for number in 0..self.shards.len() {
            let mut shard = self.lock(number);
            shard.clear();
            self.count(&mut shard);
        }
        if let Some(overrides) = &self.overrides {
            overrides.clear();
        }
        Ok(())
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        let (now, _) = self.time(now);
        let (Some(overrides), Operation::Override(change)) = (&self.overrides, &entry.operation) else {
            return Ok(());
        };
        if overrides.change(entry.plan, change, now)? {
            self.adopt(entry, now);
        }
        Ok(())
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        let (now, _) = self.time(now);
        let overrides = self.overrides.as_ref().map_or_else(Vec::new, |overrides| overrides.of(entry.plan, now));
        Ok(Answer::of_overrides(overrides, now))
    }
}
