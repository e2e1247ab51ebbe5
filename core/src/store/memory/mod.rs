//! The memory store: in this process, sharded and bounded.
//!
//! A shard is a vector of usages and a table of their indexes. Every usage that is added pays for looking at a few others,
//! so that expired ones are removed without a thread or a timer. A full shard removes the usage that expires first among
//! the next few; one that is denying its key is never removed, the shard grows instead.

mod check_all;
mod shard;
#[cfg(test)]
mod tests;
mod unstored;
mod usage;

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::Store;
use super::call_context::CallContext;
use super::completion::{BatchCompletion, MakeCompletion, PingCompletion, wake};
use super::layer_states::LayerStates;
use super::request::{Answer, Entry, States};
use crate::clock::SteadyClock;
use crate::error::Result;
use crate::one_or_many::OneOrMany;
use shard::MemoryShard;
use usage::Usage;

/// Usages that one addition checks for expiry.
const SWEPT: usize = 2;
/// The most shards: more than the threads that run at once.
const MAX_SHARDS: usize = 64;
/// The least capacity of a shard, in keys.
const MIN_SHARD_CAPACITY: usize = 256;

/// See the module.
pub(crate) struct Memory {
    shards: Box<[Mutex<MemoryShard>]>,
    hasher: RandomState,
    shard_capacity: usize,
    clock: SteadyClock,
}

impl Memory {
    /// A store of at most `max_keys` keys, not counting keys that are being denied.
    pub(crate) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / MIN_SHARD_CAPACITY).clamp(1, MAX_SHARDS).next_power_of_two().min(MAX_SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            shard_capacity: max_keys.div_ceil(shards).max(1),
            clock: SteadyClock::default(),
        }
    }

    /// The time to decide by, and how many usages an addition sweeps. A time that is given may run backwards: what has
    /// expired by it stays, as it would in Redis, until a shard is full.
    #[inline]
    fn time(&self, given: Option<u64>) -> (u64, usize) {
        given.map_or_else(|| (self.clock.micros(), SWEPT), |now| (now, 0))
    }

    #[inline]
    fn hash(&self, entry: &Entry<'_>) -> u64 {
        // The identity is a digest already; the key is the caller's, so the hasher is seeded.
        self.hasher.hash_one(entry.key) ^ entry.plan.identity as u64
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // The hash table of the shard uses the low bits and the top seven.
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    #[inline(always)]
    fn run(&self, entry: &Entry<'_>, now: u64, swept: usize) -> Answer {
        let hash = self.hash(entry);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        let index = shard.find(hash, entry);
        if let Some(view) = index.and_then(|index| shard.usages[index].try_simple_check(entry, now)) {
            return Answer { applied: true, now, views: OneOrMany::One(view), ..Answer::default() };
        }
        self.run_in(&mut shard, index, hash, entry, now, swept)
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
            return shard.usages[index].apply(entry, now);
        }
        if !unstored::may_store(entry, now) {
            return unstored::answer(entry, now);
        }
        let mut usage = Usage::new(entry, hash);
        let answer = usage.apply(entry, now);
        if usage.is_live(now) {
            shard.insert(usage, now, self.shard_capacity, swept);
        }
        answer
    }

    /// Stores states that are known from elsewhere, in place of what is stored.
    pub(crate) fn put(&self, entry: &Entry<'_>, states: States, blocked_until: u64, now: u64) {
        let hash = self.hash(entry);
        let mut usage = Usage::new(entry, hash);
        let (format, ..) = usage.stored_state();
        usage.restore((format, states.into_iter().collect(), blocked_until));
        usage.refresh_expiry(entry.plan, now);
        let mut shard = self.shards[self.shard_of(hash)].lock();
        if let Some(index) = shard.find(hash, entry) {
            shard.remove(index);
        }
        if usage.is_live(now) {
            shard.insert(usage, now, self.shard_capacity, SWEPT);
        }
    }
}

impl Store for Memory {
    #[inline]
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        let (now, swept) = self.time(context.now);
        Ok(self.run(entry, now, swept))
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let (now, swept) = self.time(context.now);
        Ok(self.check_all(entries, now, swept))
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        _: &mut LayerStates,
        _: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        Some(self.ask(entry, context))
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        wake(done(self.ask_all(entries, context)));
    }

    fn ping(&self, _: CallContext<'_>) -> Result<()> {
        Ok(())
    }

    fn submit_ping(&self, _: CallContext<'_>, done: PingCompletion) {
        wake(done(Ok(())));
    }

    fn close(&self) {}

    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
        Some(self.ask(entry, context))
    }
}
