//! The units that a process has taken of a key in advance, and how many it takes next. Pure: the caller brings the time.
//!
//! A key is leased when it is asked for often, never when it is asked for now and then. A block holds a little more
//! than the demand of one life, at most twice as much as the last one, and shrinks with the demand.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::block::{Block, LeaseCharge, Unspent};
use super::demand::{Demand, INTERVAL};
use crate::algorithm::{LeaseTerms, View};
use crate::plan::Plan;
use crate::resilience::key_table::{KeyEntry, KnownKey};
use crate::store::request::{Answer, Source};
use crate::tables::allocation::allocated;
use crate::tables::table_key::TableKeyRef;

/// Units of the first block of a key.
const FIRST_SIZE: u64 = 8;
/// The most blocks of a key: one that is spent, and the next.
const MAX_BLOCKS: usize = 2;
/// If the clock of the store jumps ahead by more microseconds, all leases end. It is the longest life of a lease.
pub(super) const MAX_JUMP: i64 = 1_000_000;
/// The most charges of ended blocks that a key remembers.
const MAX_ENDED: usize = 16;
/// Microseconds until a key asks again, after its lease was refused or failed.
const PAUSE: u64 = 100_000;
/// A clock was set back if it shows a time that is earlier than before by more than so many microseconds.
const SET_BACK: u64 = 100_000;
/// Microseconds for which a key is kept after its last block has ended, so that the rest of the block is given back.
const KEPT: u64 = 1_000_000;

/// The work that is left after a call, without the lock of the table.
#[derive(Default)]
pub(super) struct Todo {
    /// A request for more units, with its number.
    pub(super) request: Option<(u64, LeaseTerms)>,
    pub(super) unspent: SmallVec<[Unspent; 2]>,
}

/// The blocks of one key, and the size of its next one.
pub(super) struct LeasedKey {
    pub(super) known: KnownKey,
    demand: Demand,
    /// The one that ends first is spent first.
    blocks: SmallVec<[Block; MAX_BLOCKS]>,
    /// The units of the last request.
    size: u64,
    /// The number of the request that has no reply yet. 0 if there is none.
    request: u64,
    /// No request is made before that time.
    pause_until: u64,
    /// The charges of the last blocks that have ended, the oldest first, because checks that spent from them may be settled.
    ended: VecDeque<LeaseCharge>,
}

impl KeyEntry for LeasedKey {
    #[inline]
    fn known(&self) -> &KnownKey {
        &self.known
    }

    fn until(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| block.until + KEPT).max().unwrap_or(0);
        blocks.max(self.demand.since + 2 * INTERVAL)
    }
}

impl LeasedKey {
    pub(super) fn new(plan: &Arc<Plan>, key: TableKeyRef<'_>, hash: u64) -> Self {
        let mut leased = Self {
            known: KnownKey::new(plan, key, hash),
            demand: Demand::default(),
            blocks: SmallVec::new(),
            size: 0,
            request: 0,
            pause_until: 0,
            ended: VecDeque::new(),
        };
        leased.measure();
        leased
    }

    fn measure(&mut self) {
        let views = self.blocks.iter().map(|block| block.views.heap_bytes()).sum::<usize>();
        self.known.measure(views + allocated(self.ended.capacity() * size_of::<LeaseCharge>()));
    }

    /// Spends `cost` units, if there are as many. Otherwise, if `asks`, the store is asked. Requests more when they run out.
    #[inline]
    pub(super) fn spend(
        &mut self,
        plan: &Arc<Plan>,
        cost: u64,
        now: u64,
        asks: bool,
        next_request: impl FnOnce() -> u64,
        todo: &mut Todo,
    ) -> Option<Answer> {
        if !self.is_current(plan) {
            self.end(todo);
            self.known.plan = Arc::clone(plan);
            self.ended.clear();
            self.measure();
        }
        self.expire(now, todo);
        let block = self.block_with(cost);
        let enough = block.is_some();
        if enough || asks {
            self.demand.add(now, cost);
        }
        let answer = block.map(|block| {
            self.blocks[block].left -= cost;
            Answer { block: self.blocks[block].charge.block, ..self.answer(now, cost) }
        });
        if (enough || asks) && self.is_due(now) {
            self.ask(cost, next_request, todo);
        }
        answer
    }

    /// The answer to a peek, if the units suffice.
    pub(super) fn peek(&mut self, plan: &Arc<Plan>, cost: u64, now: u64, todo: &mut Todo) -> Option<Answer> {
        self.expire(now, todo);
        let enough = self.is_current(plan) && self.block_with(cost).is_some();
        enough.then(|| Answer { granted: 0, ..self.answer(now, cost) })
    }

    /// True if the store's clock is ahead by more than the life of a lease, compared to when the units of a block were
    /// charged. Then all of them have left their windows, as far as the store knows.
    pub(super) fn is_outrun_by(&self, ahead: i64) -> bool {
        self.blocks.iter().any(|block| ahead > block.ahead() + MAX_JUMP)
    }

    /// True if the blocks are of this version of the policy.
    #[inline]
    fn is_current(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.known.plan, plan) || self.known.plan.policy == plan.policy
    }

    fn left(&self) -> u64 {
        self.blocks.iter().map(|block| block.left).sum()
    }

    /// The block from which a check of that cost is spent. All of it comes from one, so that it can go back there.
    #[inline]
    fn block_with(&self, cost: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.left >= cost)
    }

    /// Takes back units of a check that was spent from that block: into the block, or to the store if the block has ended.
    pub(super) fn take_back(&mut self, block: u32, units: u64, now: u64, todo: &mut Todo) {
        self.expire(now, todo);
        if let Some(block) = self.blocks.iter_mut().find(|known| known.charge.block == block) {
            block.left = block.granted.min(block.left + units);
        } else if let Some(charge) = self.ended.iter().find(|charge| charge.block == block) {
            todo.unspent.push(charge.unspent(&self.known.plan, units));
        }
    }

    /// Ends the blocks that are spent or have expired. A clock that was set back shows a time that the answer of the
    /// store does not cover. A clock that was read just before a block was received was not set back.
    #[inline]
    pub(super) fn expire(&mut self, now: u64, todo: &mut Todo) {
        let ends = |block: &Block| block.left == 0 || block.until <= now || block.received > now + SET_BACK;
        while self.blocks.first().is_some_and(ends) {
            self.end_first(todo);
        }
    }

    #[cold]
    fn end_first(&mut self, todo: &mut Todo) {
        let block = self.blocks.remove(0);
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(block.charge);
        if block.left > 0 {
            // The demand was smaller than expected.
            self.size = (block.granted - block.left).max(FIRST_SIZE);
            todo.unspent.push(block.unspent(&self.known.plan));
        }
        self.measure();
    }

    /// Ends all blocks, and the request that has no reply yet.
    pub(super) fn end(&mut self, todo: &mut Todo) {
        while !self.blocks.is_empty() {
            self.end_first(todo);
        }
        self.request = 0;
    }

    /// True if more units should be requested: the last block is half spent, or half of its time is gone.
    #[inline]
    fn is_due(&self, now: u64) -> bool {
        if self.request != 0 || now < self.pause_until || self.blocks.len() == MAX_BLOCKS {
            return false;
        }
        let due = self.blocks.first().is_none_or(|block| {
            block.left * 2 <= block.granted || now.saturating_sub(block.received) * 2 >= block.until - block.received
        });
        due && self.demand.is_hot()
    }

    #[cold]
    fn ask(&mut self, cost: u64, next_request: impl FnOnce() -> u64, todo: &mut Todo) {
        let Some(terms) = self.known.plan.lease else { return };
        let demand = self.demand.units_in(terms.life);
        let wanted = demand.saturating_add(demand / 4).min(self.size.saturating_mul(2)).max(FIRST_SIZE.max(2 * cost));
        // A process never holds more than its share.
        let units = wanted.min(terms.units.saturating_sub(self.left()));
        if units <= cost {
            return;
        }
        (self.size, self.request) = (units, next_request());
        todo.request = Some((self.request, LeaseTerms { units, ..terms }));
    }

    /// The request with that number brought no block. Another one may be made, after a pause.
    pub(super) fn refused(&mut self, number: u64, now: u64) {
        if self.request == number {
            (self.request, self.pause_until, self.size) = (0, now + PAUSE, self.size / 2);
        }
    }

    /// Adds the block of the request with that number, unless the request has ended. Returns the end of the block.
    pub(super) fn add(
        &mut self,
        number: u64,
        (plan, block): (&Arc<Plan>, Block),
        now: u64,
        todo: &mut Todo,
    ) -> Option<u64> {
        let is_wanted = self.request == number;
        if is_wanted {
            self.request = 0;
        }
        if !is_wanted || block.until <= now {
            todo.unspent.push(block.unspent(plan));
            return None;
        }
        let until = block.until;
        self.size = self.size.min(block.granted);
        let place = self.blocks.iter().position(|other| other.until > until).unwrap_or(self.blocks.len());
        self.blocks.insert(place, block);
        self.measure();
        Some(until)
    }

    /// The answer to a check of `cost` that was spent. The units of the store and those that this process has taken are left.
    fn answer(&self, now: u64, cost: u64) -> Answer {
        let Some(newest) = self.blocks.last() else { return Answer::default() };
        let (at, left) = (newest.charge.at + (now - newest.received.min(now)), self.left());
        let view = |view: &View| View {
            left: view.left.saturating_add_unsigned(left),
            admits_at: if left >= cost { Some(at) } else { view.admits_at.map(|moment| moment.max(at)) },
            resets_at: view.resets_at.max(at),
            more_at: view.more_at.max(at),
            delay: 0,
        };
        Answer {
            applied: true,
            granted: cost,
            now: at,
            views: newest.views.iter().map(view).collect(),
            source: Source::Lease,
            ..Answer::default()
        }
    }
}
