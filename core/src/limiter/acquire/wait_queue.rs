//! The callers that wait for one policy and key. Only the first asks the store, so that two callers never get the same wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::process::lock::Mutex;
use compact_str::CompactString;

use super::bucket_turns::{BucketTurn, BucketTurns};
use super::queue_estimate::WantedUnits;
use crate::algorithm::HoldId;
use crate::decision::{Decision, LimiterId};
use crate::plan::Plan;
use crate::process::clock::Signal;
use crate::store::request::{LinePlace, RANK_SHIFT, Source};

/// The callers of one policy and key: higher classes first, else in the order they came.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    pub(super) plan: Arc<Plan>,
    pub(super) key: CompactString,
    /// Identifies its callers in the line over all processes, without the rank of their class.
    number: HoldId,
    waiters: Mutex<Waiters>,
    /// The callers that have turns in the store, or have asked for one.
    turns: BucketTurns,
    /// The end of the last block of the key that the first caller learned of, by the time of the store.
    blocked_until: AtomicU64,
    /// The number of callers that ask the store as the first of the queue. A caller of a higher class may come meanwhile.
    asking: AtomicUsize,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Waiters {
    last_number: u64,
    waiting: VecDeque<Waiter>,
}

impl Waiters {
    const fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// The request of a caller that waits.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The rank of its class.
    pub(super) rank: u64,
    pub(super) units: WantedUnits,
    /// The start of its wait, by the time of the limiter.
    pub(super) since: Duration,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    wanted: Wanted,
}

impl WaitQueue {
    /// A queue without callers.
    pub(super) fn new(plan: Arc<Plan>, key: &str, number: HoldId) -> Self {
        let number = number & ((1 << RANK_SHIFT) - 1);
        Self {
            plan,
            key: key.into(),
            number,
            waiters: Mutex::default(),
            turns: BucketTurns::default(),
            blocked_until: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            signal: Arc::default(),
        }
    }

    /// The number that identifies the callers of a class in the line over all processes.
    const fn line_number(&self, rank: u64) -> HoldId {
        self.number | rank << RANK_SHIFT
    }

    /// The numbers that callers may have in the line over all processes. The first of each class stands there.
    pub(super) fn line_numbers(&self) -> Vec<HoldId> {
        let waiters = self.waiters.lock();
        let mut numbers: Vec<_> = waiters.waiting.iter().map(|waiter| self.line_number(waiter.wanted.rank)).collect();
        numbers.dedup();
        numbers
    }

    /// Adds a caller behind all of its class. Returns its number.
    fn enter(&self, wanted: Wanted) -> u64 {
        let mut waiters = self.waiters.lock();
        let number = waiters.next_number();
        let at = waiters.waiting.partition_point(|other| other.wanted.rank <= wanted.rank);
        waiters.waiting.insert(at, Waiter { number, wanted });
        number
    }

    /// Removes a caller and notifies the others.
    fn leave(&self, number: u64) {
        self.waiters.lock().waiting.retain(|waiter| waiter.number != number);
        self.signal.notify();
    }

    /// The units that the callers ahead of that number want. `None` if it is the first.
    fn units_ahead(&self, number: u64) -> Option<WantedUnits> {
        let waiters = self.waiters.lock();
        let ahead = waiters.waiting.iter().take_while(|waiter| waiter.number != number);
        ahead.map(|waiter| waiter.wanted.units.clone()).reduce(WantedUnits::and)
    }

    /// The units that all callers want.
    pub(super) fn units(&self) -> WantedUnits {
        let waiters = self.waiters.lock();
        let all = waiters.waiting.iter().map(|waiter| waiter.wanted.units.clone());
        all.reduce(WantedUnits::and).unwrap_or_default()
    }

    /// The number of callers that wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.lock().waiting.len() + self.turns.len()
    }

    /// The number of callers that wait or are about to.
    pub(super) fn places(&self) -> usize {
        self.waiters.lock().waiting.len() + self.turns.places()
    }

    pub(super) const fn turns(&self) -> &BucketTurns {
        &self.turns
    }

    /// Notified when a caller has left, and when units of the key were given back.
    pub(super) const fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

/// Keeps a caller in its queue until it is dropped.
#[derive(Debug)]
pub(super) struct QueuePosition {
    queue: Arc<WaitQueue>,
    number: u64,
    wanted: Wanted,
    /// True while it asks the store as the first caller.
    asks: AtomicBool,
    /// The callers in all queues.
    waiting: Arc<AtomicUsize>,
}

impl QueuePosition {
    /// A position in a queue behind all callers of the same class.
    pub(super) fn enter(queue: Arc<WaitQueue>, wanted: Wanted, waiting: Arc<AtomicUsize>) -> Self {
        let number = queue.enter(wanted.clone());
        waiting.fetch_add(1, Ordering::Relaxed);
        Self { queue, number, wanted, asks: AtomicBool::new(false), waiting }
    }

    /// The units that the callers ahead want. `None` if this is the first.
    pub(super) fn units_ahead(&self) -> Option<WantedUnits> {
        self.queue.units_ahead(self.number)
    }

    /// The place of the caller in the line over all processes. It is the first of its queue.
    pub(super) fn line_place(&self, now: Duration) -> LinePlace {
        let age = |since: Duration| now.saturating_sub(since).as_micros() as u64;
        let waiter = self.queue.line_number(self.wanted.rank);
        LinePlace { waiter, age: age(self.wanted.since), next_age: self.next().map(age) }
    }

    /// The start of the wait of the next caller of the same class.
    pub(super) fn next(&self) -> Option<Duration> {
        let waiters = self.queue.waiters.lock();
        let mut others = waiters.waiting.iter().filter(|other| other.number != self.number);
        others.find(|other| other.wanted.rank == self.wanted.rank).map(|other| other.wanted.since)
    }

    /// Takes the end of the block that the first caller learned of. Those behind it hear of a later end.
    pub(super) fn tell_block(&self, until: u64) {
        if self.queue.blocked_until.swap(until, Ordering::Relaxed) < until {
            self.signal().notify();
        }
    }

    /// Notes that this caller, which is the first, asks the store.
    pub(super) fn begin_question(&self) {
        if !self.asks.swap(true, Ordering::Relaxed) {
            self.queue.asking.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes that it goes on waiting after its answer, or has left.
    pub(super) fn end_question(&self) {
        if self.asks.swap(false, Ordering::Relaxed) {
            self.queue.asking.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// True if a first caller may have been admitted since the signal had that count. Then the store has charged its units, and the
    /// queue may still have it.
    pub(super) fn has_moved(&self, count: u64) -> bool {
        self.queue.asking.load(Ordering::SeqCst) > 0 || self.signal().count() != count
    }

    /// The end of the key's block, as far as the first caller knows it.
    pub(super) fn blocked_until(&self) -> u64 {
        self.queue.blocked_until.load(Ordering::Relaxed)
    }

    /// Notified when a caller has left the queue, when units of the key were given back, and when its block ends later.
    pub(super) fn signal(&self) -> &Arc<Signal> {
        self.queue.signal()
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        // Leaving notifies the others, so they see one of both: the question, or the notice.
        self.queue.leave(self.number);
        self.end_question();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a place for a caller that asks for a turn, and then its turn, until it is dropped.
#[derive(Debug)]
pub(super) struct TurnPlace {
    queue: Arc<WaitQueue>,
    /// The callers in all queues.
    waiting: Arc<AtomicUsize>,
    number: u64,
}

impl TurnPlace {
    pub(super) fn enter(queue: Arc<WaitQueue>, waiting: Arc<AtomicUsize>) -> Self {
        let number = queue.waiters.lock().next_number();
        queue.turns.ask(number);
        waiting.fetch_add(1, Ordering::Relaxed);
        Self { queue, waiting, number }
    }

    /// The destination of the turn: the queue, and the number of the caller there.
    pub(super) fn destination(&self) -> (Arc<WaitQueue>, u64) {
        (Arc::clone(&self.queue), self.number)
    }

    /// Notified when a caller has another turn.
    pub(super) fn signal(&self) -> &Arc<Signal> {
        self.queue.signal()
    }

    /// The moment of the turn, by the time of the limiter.
    pub(super) fn due(&self) -> Option<Duration> {
        self.queue.turns.due(self.number)
    }

    /// The part of Tidegate that granted the turn, and when the caller asked, by the time of the store.
    pub(super) fn granted(&self) -> Option<(Source, u64)> {
        self.queue.turns.granted(self.number)
    }

    /// The Decision of the caller when its turn has come.
    pub(super) fn take(self, limiter: LimiterId, key: &str) -> Option<Decision> {
        self.queue.turns.take(self.number, limiter, key)
    }

    /// Gives up the turn. Returns a turn that no other caller of this process can use.
    pub(super) fn give_up(&self) -> Option<BucketTurn> {
        let turn = self.queue.turns.give_up(self.number)?;
        self.signal().notify();
        Some(turn)
    }
}

impl Drop for TurnPlace {
    fn drop(&mut self) {
        self.queue.turns.forget_asking(self.number);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
