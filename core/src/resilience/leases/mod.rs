//! Spends units that this process has taken of a key in advance, without asking the store. See docs/adr/0022.
//!
//! `leased_key.rs` has the blocks of a key, and `demand.rs` its demand. `expiry.rs` gives back the rest of a block when
//! its time is over.

mod block;
mod demand;
mod expiry;
mod leased_key;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use compact_str::CompactString;

use super::key_table::{KeyPlace, KeyTable, TableShard};
use super::layer::Layer;
use crate::algorithm::LeaseTerms;
use crate::error::Result;
use crate::plan::{Amount, Plan};
use crate::process::clock::{ManualClock, SteadyClock};
use crate::process::fork::PerProcess;
use crate::process::pending_count::PendingCount;
use crate::resilience::layer::submit_then;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::wake;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, Source};
use crate::tables::table_key::{TableKey, TableKeyRef};
use block::{Block, Unspent};
use expiry::{BlockEnd, Expiry};
use leased_key::{LeasedKey, MAX_JUMP, Todo};

/// Stands for an unknown clock.
const NO_CLOCK: i64 = i64::MIN;
/// The most blocks that `close` gives back.
const MAX_RETURNED: usize = 4_096;

/// The layer that spends leased units.
pub(crate) struct Leases {
    /// The layers below, for requests of this one.
    store: Arc<dyn Store>,
    /// The longest time that `close` waits.
    timeout: Duration,
    time: SteadyClock,
    /// A clock that is moved by hand, in place of that of the process.
    clock: Option<Arc<ManualClock>>,
    /// A forked child begins without blocks: its parent spends them.
    keys: PerProcess<KeyTable<LeasedKey>>,
    expiry: Expiry,
    /// The number of the last request.
    requests: AtomicU64,
    /// The most that the store's clock was known to be ahead of this process's. [`NO_CLOCK`] before the first lease.
    ahead: AtomicI64,
    /// The calls of this layer that have no reply yet.
    pending: PendingCount,
    this: Weak<Self>,
}

/// The use that a call has for a block with enough units.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Spends units. Without enough of them, the store is asked.
    Check,
    /// Spends units. Without enough of them, nothing is done.
    Immediate,
    Peek,
}

impl Leases {
    pub(crate) fn new(store: Arc<dyn Store>, timeout: Duration, clock: Option<Arc<ManualClock>>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            store,
            timeout,
            time: SteadyClock::default(),
            clock,
            keys: PerProcess::new(),
            expiry: Expiry::default(),
            requests: AtomicU64::new(0),
            ahead: AtomicI64::new(NO_CLOCK),
            pending: PendingCount::default(),
            this: Weak::clone(this),
        })
    }

    /// How many checks it has answered.
    pub(crate) fn answers(&self) -> u64 {
        self.with(|table| table.sum(|shard| shard.answers))
    }

    fn with<R>(&self, run: impl FnOnce(&KeyTable<LeasedKey>) -> R) -> R {
        self.keys.with(KeyTable::default, run)
    }

    /// The time of this process.
    #[inline]
    fn time(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| self.time.micros(), |clock| clock.micros())
    }

    #[inline]
    fn lookup(&self, entry: &Entry<'_>, its_use: Use) -> Option<Answer> {
        let cost = match (&entry.operation, its_use) {
            // A part has to stay free for others, and only the store can check that.
            (operation, _) if operation.amounts().is_some() => return None,
            (
                Operation::Check { cost, hold: 0, .. }
                | Operation::Acquire { cost, .. }
                | Operation::Turn { cost, .. }
                | Operation::Take { cost, .. },
                Use::Check | Use::Immediate,
            )
            | (Operation::Peek { cost, .. }, Use::Peek) => *cost,
            _ => return None,
        };
        let now = self.time();
        let key = TableKeyRef::of(entry.key);
        let mut todo = Todo::default();
        let answer = self.with(|table| {
            let KeyPlace { mut shard, hash, index } = table.place(entry.plan, key);
            let index = match index {
                Some(index) => index,
                None if its_use == Use::Check => {
                    shard.insert(LeasedKey::new(entry.plan, key, hash), now);
                    shard.find(hash, |leased| leased.known.is_of(entry.plan, key))?
                }
                None => return None,
            };
            let next_request = || self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = shard.change(index, |leased| match its_use {
                Use::Peek => leased.peek(entry.plan, cost, now, &mut todo),
                _ => leased.spend(entry.plan, cost, now, its_use == Use::Check, next_request, &mut todo),
            });
            shard.answers += u64::from(answer.is_some());
            drop(shard);
            table.sweep_if_due(now);
            answer
        });
        if let Some((number, terms)) = todo.request {
            self.request(entry, number, terms);
        }
        self.return_unspent(todo, entry.key);
        answer
    }

    /// Makes a call of this layer, without waiting.
    fn post(&self, entry: &Entry<'_>, done: impl FnOnce(Result<Answer>) + Send + 'static) {
        let counted = self.pending.begin();
        let context = CallContext::at(self.clock.as_ref().map(|clock| clock.micros()));
        wake(submit_then(&self.store, entry, context, move |result| {
            done(result);
            drop(counted);
            None
        }));
    }

    /// Asks the store for units.
    #[cold]
    fn request(&self, entry: &Entry<'_>, number: u64, terms: LeaseTerms) {
        let this = Weak::clone(&self.this);
        let plan = Arc::clone(entry.plan);
        let key = CompactString::from(entry.key);
        let sent = self.time();
        self.post(&Entry { operation: Operation::Lease(terms), ..*entry }, move |result| {
            if let Some(this) = this.upgrade() {
                let times = (sent, this.time());
                let block = result.ok().and_then(|answer| Block::granted(&plan, number, terms, &answer, times));
                this.replied(&plan, &key, number, block);
            }
        });
    }

    fn replied(&self, plan: &Arc<Plan>, key: &CompactString, number: u64, block: Option<Block>) {
        let now = self.time();
        let key_ref = TableKeyRef::of(key);
        let mut todo = Todo::default();
        if let Some(block) = &block {
            self.note_clock(block.ahead(), plan, key_ref);
        }
        let until = self.with(|table| {
            let mut place = table.place(plan, key_ref);
            let Some(block) = block else {
                place.change(|leased| leased.refused(number, now));
                return None;
            };
            if place.index.is_none() {
                // The table had no room for the key, or all keys were forgotten.
                todo.unspent.push(block.unspent(plan));
            }
            place.change(|leased| leased.add(number, (plan, block), now, &mut todo)).flatten()
        });
        if let Some(until) = until {
            let end = BlockEnd { plan: Arc::clone(plan), key: key.clone() };
            self.expiry.add(until, end, &self.this, self.clock.is_some());
        }
        self.return_unspent(todo, key);
    }

    /// Gives units back to the store.
    #[inline]
    fn return_unspent(&self, todo: Todo, key: &str) {
        for Unspent { plan, units, charge } in todo.unspent {
            self.post(&Entry { plan: &plan, key, operation: Operation::GiveBack { units, charge } }, drop);
        }
    }

    /// Changes the state of a key, and gives back the units that it does not need then.
    #[cold]
    fn change(&self, plan: &Plan, key: &str, change: impl FnOnce(&mut LeasedKey, &mut Todo)) {
        let mut todo = Todo::default();
        self.with(|table| table.place(plan, TableKeyRef::of(key)).change(|leased| change(leased, &mut todo)));
        self.return_unspent(todo, key);
    }

    /// Gives back the rest of the blocks that have expired.
    pub(super) fn expire(&self) {
        loop {
            let now = self.time();
            let Some(BlockEnd { plan, key }) = self.expiry.pop(now) else { return };
            self.change(&plan, &key, |leased, todo| leased.expire(now, todo));
        }
    }

    /// Forgets all blocks: their keys have moved to another store, or were cleared.
    pub(super) fn forget(&self) {
        self.with(|table| table.each(TableShard::clear));
    }

    /// Learns how far the store's clock is ahead. If it has jumped further than a lease lives, the store no longer
    /// counts the units that were leased before, and all leases end.
    fn note_clock(&self, ahead: i64, plan: &Plan, key: TableKeyRef<'_>) {
        let noted = self.ahead.fetch_max(ahead, Ordering::Relaxed);
        let outrun =
            |table: &KeyTable<LeasedKey>| table.place(plan, key).get().is_some_and(|leased| leased.is_outrun_by(ahead));
        let jumped = noted != NO_CLOCK && ahead > noted.saturating_add(MAX_JUMP);
        if jumped || plan.lease.is_some() && self.with(outrun) {
            self.forget();
        }
    }

    /// Takes back units of a check that was spent from a block. The store gets its part of them in the background.
    #[cold]
    fn take_back(&self, entry: &Entry<'_>, units: u64, block: u32) -> Answer {
        let now = self.time();
        self.change(entry.plan, entry.key, |leased, todo| leased.take_back(block, units, now, todo));
        Answer { applied: true, now, views: entry.plan.unused_views(now, |_| Amount::of(1)), ..Answer::default() }
    }
}

/// True if an operation of this process ends the blocks of its key.
const fn changes(operation: &Operation) -> bool {
    matches!(operation, Operation::Charge { .. } | Operation::Block { .. } | Operation::Clear)
}

impl Layer for Leases {
    #[inline]
    fn before(&self, entry: &Entry<'_>, context: &CallContext<'_>, _: &mut LayerStates) -> Option<Result<Answer>> {
        entry.plan.lease?;
        if context.waits.is_never() {
            return self.lookup(entry, Use::Immediate).map(Ok);
        }
        if let Operation::GiveBack { units, ref charge } = entry.operation
            && charge.block != 0
        {
            return Some(Ok(self.take_back(entry, units, charge.block)));
        }
        let its_use = if matches!(entry.operation, Operation::Peek { .. }) { Use::Peek } else { Use::Check };
        let answer = self.lookup(entry, its_use);
        if answer.is_none() && changes(&entry.operation) {
            self.change(entry.plan, entry.key, LeasedKey::end);
        }
        answer.map(Ok)
    }

    #[inline]
    fn after(&self, entry: &Entry<'_>, _: Option<u64>, _: &LayerStates, result: &mut Result<Answer>) {
        // Ends units that were taken while the call was under way. The store does not take back charges from before a clear.
        if entry.plan.lease.is_some() && changes(&entry.operation) {
            self.change(entry.plan, entry.key, LeasedKey::end);
        }
        if let Ok(answer) = result
            && self.ahead.load(Ordering::Relaxed) != NO_CLOCK
            && answer.source == Source::Store
        {
            self.note_clock(answer.now.wrapping_sub(self.time()) as i64, entry.plan, TableKeyRef::of(entry.key));
        }
    }

    fn numbers_changed(&self, entry: &Entry<'_>) {
        self.change(entry.plan, entry.key, LeasedKey::end);
    }

    fn forget_all(&self) {
        self.forget();
    }

    /// Gives all blocks back, and waits until the store has them, at most as long as a call may take.
    fn close(&self) {
        self.expiry.stop();
        let deadline = Instant::now() + self.timeout;
        self.pending.wait(deadline);
        let keys: Vec<LeasedKey> = self.with(|table| {
            let mut keys = Vec::new();
            table.each(|shard| keys.extend(shard.take()));
            keys
        });
        let mut returned = 0;
        for mut leased in keys {
            let mut todo = Todo::default();
            leased.end(&mut todo);
            // A longer key is only known by its digest.
            let TableKey::Text(key) = &leased.known.key else { continue };
            todo.unspent.truncate(MAX_RETURNED - returned);
            returned += todo.unspent.len();
            self.return_unspent(todo, key);
        }
        self.pending.wait(deadline);
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.expiry.stop();
    }
}
