//! Repeats a denial without asking the store, until the moment that the store named.

mod denial;
mod generations;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::key_table::{KeyTable, SHARDS, TableShard, shard_of};
use super::layer::Layer;
use crate::error::Result;
use crate::process::clock::SteadyClock;
use crate::process::fork::PerProcess;
use crate::store::call_context::CallContext;
use crate::store::layer_states::{LayerStates, SentCheck};
use crate::store::request::{Answer, Entry, Operation, Source};
use crate::tables::table_key::TableKeyRef;
use denial::{Denial, DenialTimes};
pub(crate) use generations::DenialGenerations;

/// The longest time that a denial may be repeated.
pub(crate) const MAX_DENY_CACHE: Duration = Duration::from_secs(60);
/// The most denials of one policy and key that are kept, each for another cost.
const MAX_COSTS: usize = 4;

/// The layer that repeats denials.
pub(crate) struct DenyCache {
    longest: u64,
    time: SteadyClock,
    /// A forked child begins anew, because a lock that a thread of its parent held stays locked in the child.
    denials: PerProcess<KeyTable<Denial>>,
    /// They change while the shard is locked, so that no answer is kept that is older than a change.
    pub(super) generations: DenialGenerations,
}

/// The result of a lookup.
enum Lookup {
    Denied(Answer),
    /// The store must be asked, and the cache may learn from its answer.
    Ask(SentCheck),
    /// The cache never answers such an operation.
    Uncached,
}

impl DenyCache {
    pub(crate) fn new(longest: Duration) -> Self {
        let longest = longest.min(MAX_DENY_CACHE).as_micros() as u64;
        Self {
            longest,
            time: SteadyClock::default(),
            denials: PerProcess::new(),
            generations: DenialGenerations::default(),
        }
    }

    /// How many denials it has repeated.
    pub(crate) fn answers(&self) -> u64 {
        self.with(|table| table.sum(|shard| shard.answers))
    }

    /// Counts denials that a host has repeated itself.
    pub(super) fn count_repeated(&self, times: u64) {
        self.with(|table| table.shard(0).answers += times);
    }

    /// Drops all denials: keys have moved to another store.
    pub(crate) fn clear(&self) {
        // First, so that a denial that a thread keeps meanwhile is either dropped below or not kept.
        (0..SHARDS).for_each(|shard| self.generations.end(shard));
        self.with(|table| table.each(TableShard::clear));
    }

    fn with<R>(&self, run: impl FnOnce(&KeyTable<Denial>) -> R) -> R {
        self.denials.with(KeyTable::default, run)
    }

    fn time(&self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| self.time.micros())
    }

    /// Looks for a denial. If `renews` is true, this check may go through to renew it.
    #[inline]
    fn lookup(&self, entry: &Entry<'_>, given: Option<u64>, renews: bool) -> Lookup {
        if !entry.operation.is_check() || is_in_line(&entry.operation) || !entry.plan.repeats_denials() {
            return Lookup::Uncached;
        }
        let (now, key) = (self.time(given), TableKeyRef::of(entry.key));
        self.with(|table| {
            let hash = table.hash(entry.plan, key);
            let mut shard = table.shard(hash);
            // A partial check is denied exactly when a check of one unit is.
            let found =
                shard.find(hash, |denial| denial.asked.is_of(&entry.operation) && denial.is_of(entry.plan, key));
            let repeated = |denial: &mut Denial| denial.repeated(entry.plan, now, renews);
            let generation = self.generations.of(shard_of(hash));
            if let Some(answer) = found.and_then(|index| shard.change(index, repeated)) {
                shard.answers += 1;
                return Lookup::Denied(Answer { denial_generation: generation, ..answer });
            }
            let known = found.is_some() || shard.find(hash, |denial| denial.is_of(entry.plan, key)).is_some();
            drop(shard);
            if given.is_none() {
                table.sweep_if_due(now);
            }
            Lookup::Ask(SentCheck { hash, generation, sent: now, known })
        })
    }

    /// Learns from the answer to a check.
    fn learn(&self, sent_check: SentCheck, entry: &Entry<'_>, given: Option<u64>, answer: &mut Answer) {
        let states = answer.states.take();
        if answer.applied {
            if sent_check.known {
                // The check consumed units, so other costs are denied longer than the cache knows.
                self.with(|table| remove(table, sent_check.hash, entry, TableKeyRef::of(entry.key)));
            }
            return;
        }
        let Some(states) = states.filter(|_| answer.source == Source::Store) else { return };
        let received = self.time(given);
        let times = DenialTimes { sent: sent_check.sent, received, longest: self.longest };
        let key = TableKeyRef::of(entry.key);
        let Some(denial) = Denial::new(entry, (sent_check.hash, key), answer, *states, &times) else { return };
        let until = denial.until;
        let is_of = |other: &Denial| other.is_of(entry.plan, key);
        let is_kept = self.with(|table| {
            let mut shard = table.shard(sent_check.hash);
            let is_current = self.generations.of(shard_of(sent_check.hash)) == sent_check.generation;
            if is_current {
                keep(&mut shard, sent_check.hash, is_of, denial);
            }
            is_current
        });
        if is_kept {
            (answer.denied_for, answer.denial_generation) = ((until - received) as u32, sent_check.generation);
        }
    }

    /// Drops the denials of a key if its usage is being changed, or was.
    pub(super) fn invalidate(&self, entry: &Entry<'_>) {
        self.with(|table| {
            let key = TableKeyRef::of(entry.key);
            let hash = table.hash(entry.plan, key);
            let mut shard = table.shard(hash);
            self.generations.end(shard_of(hash));
            shard.remove_all(hash, |denial| denial.is_of(entry.plan, key));
        });
    }
}

fn remove(table: &KeyTable<Denial>, hash: u64, entry: &Entry<'_>, key: TableKeyRef<'_>) {
    table.shard(hash).remove_all(hash, |denial| denial.is_of(entry.plan, key));
}

/// Keeps a denial. If its key has too many, it replaces the one that ends first.
fn keep(shard: &mut TableShard<Denial>, hash: u64, is_of: impl Fn(&Denial) -> bool, denial: Denial) {
    let of_key = shard.all(hash, is_of);
    let same = of_key.iter().find(|index| shard.get(**index).asked == denial.asked).copied();
    let soonest = || of_key.iter().min_by_key(|index| shard.get(**index).until).copied();
    match same.or_else(|| if of_key.len() >= MAX_COSTS { soonest() } else { None }) {
        Some(index) => shard.change(index, |known| *known = denial),
        None => {
            let now = denial.received;
            shard.insert(denial, now);
        }
    }
}

/// True for a caller in line, which keeps its place by asking, or takes a turn.
const fn is_in_line(operation: &Operation) -> bool {
    matches!(operation, Operation::Acquire { .. } | Operation::Turn { .. })
}

/// True if an operation changes usage or a block.
const fn changes(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Charge { .. }
            | Operation::Surcharge { .. }
            | Operation::Refund { .. }
            | Operation::GiveBack { .. }
            | Operation::Block { .. }
            | Operation::Clear
    ) || is_in_line(operation)
}

impl Layer for DenyCache {
    #[inline]
    fn before(&self, entry: &Entry<'_>, context: &CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        let goes_on = !context.waits.is_never();
        match self.lookup(entry, context.now, goes_on) {
            Lookup::Denied(answer) => return Some(Ok(answer)),
            Lookup::Ask(sent_check) if goes_on => states.deny_cache = Some(sent_check),
            Lookup::Uncached if goes_on && changes(&entry.operation) => self.invalidate(entry),
            Lookup::Ask(_) | Lookup::Uncached => {}
        }
        None
    }

    #[inline]
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, states: &LayerStates, result: &mut Result<Answer>) {
        if let (Some(sent_check), Ok(answer)) = (states.deny_cache, &mut *result) {
            self.learn(sent_check, entry, now, answer);
        }
        // A peek that is admitted shows that the denial is over.
        let admitted = || matches!((&entry.operation, result), (Operation::Peek { .. }, Ok(answer)) if answer.applied);
        if changes(&entry.operation) || admitted() {
            self.invalidate(entry);
        }
    }

    /// Drops the denials of keys that were charged, because other costs are denied longer now. A known denial of one
    /// entry does not answer the call, because its Decision has the state of all entries.
    fn after_all(
        &self,
        entries: &[Entry<'_>],
        _: Option<u64>,
        _: &LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        if let Ok(answers) = &result {
            for (entry, _) in entries.iter().zip(answers).filter(|(_, answer)| answer.applied) {
                let key = TableKeyRef::of(entry.key);
                self.with(|table| remove(table, table.hash(entry.plan, key), entry, key));
            }
        }
        result
    }

    fn numbers_changed(&self, entry: &Entry<'_>) {
        self.invalidate(entry);
    }

    fn forget_all(&self) {
        self.clear();
    }
}
