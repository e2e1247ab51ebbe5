//! The calls that wait for a server: which of them travel as one batch, and when a batch is sent.
//!
//! Calls of one slot that wait at the same moment travel as one script call. To a node of a cluster with Redis 7 or
//! newer, calls of several slots can also travel together. A single call is sent at once. While batches are in flight,
//! new calls wait until there are enough of them or until nothing is in flight any more. Sending before the reply is
//! back keeps the server busy while the callers work.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::pending_call::{Callers, PendingCall};
use super::schedule::NextMoment;
use crate::store::redis::script::Grouping;

/// The most batches of one slot in flight at once.
const MAX_IN_FLIGHT: usize = 4;
/// While a batch is in flight, this many waiting calls make another one: a quarter of the calls in flight, within these
/// bounds. Few callers get small batches, so that they and the server need not take turns. Many callers get large
/// batches, which cost the server less.
const BATCH_THRESHOLD: RangeInclusive<usize> = 8..=32;
/// No call waits longer than this for others. Over a slow link, even small batches follow each other.
pub(crate) const MAX_BATCH_DELAY: Duration = Duration::from_millis(12);
/// The most slots that are remembered although no call waits there.
pub(crate) const MAX_IDLE_QUEUES: usize = 1_024;
/// The queue of calls that travel together whatever their slots are.
const ALL_SLOTS: u16 = u16::MAX;
/// Marks the queue of the calls of a slot whose keys have companions. A script call has companions for all its keys or for
/// none, so these calls would cut the batches of the others short.
const WITH_COMPANIONS: u16 = 1 << 15;

/// The waiting calls of one slot, or of all slots, and the number of batches and calls in flight.
#[derive(Default)]
struct SlotQueue<C: Callers> {
    waiting: VecDeque<PendingCall<C>>,
    in_flight: usize,
    /// Calls in the batches in flight.
    calls_in_flight: usize,
    /// True if it is listed as one that may send.
    listed: bool,
}

impl<C: Callers> SlotQueue<C> {
    /// When the oldest call has waited long enough for others. `timeout` is the time that a call may take.
    fn delay_ends(&self, timeout: Duration) -> Option<Instant> {
        Some(self.waiting.front()?.state.deadline + MAX_BATCH_DELAY - timeout.max(MAX_BATCH_DELAY))
    }

    /// True if a batch may be sent before the oldest call has waited long enough.
    fn may_send(&self, max_batch: usize) -> bool {
        let threshold = (self.calls_in_flight / 4).clamp(*BATCH_THRESHOLD.start(), *BATCH_THRESHOLD.end());
        max_batch == 1 || self.in_flight == 0 || self.in_flight < MAX_IN_FLIGHT && self.waiting.len() >= threshold
    }

    const fn sent(&mut self, calls: usize) {
        (self.in_flight, self.calls_in_flight) = (self.in_flight + 1, self.calls_in_flight + calls);
    }

    /// Lists the queue as one that may send, if calls wait there.
    fn list(&mut self, number: u16, ready: &mut VecDeque<u16>) {
        if !self.listed && !self.waiting.is_empty() {
            self.listed = true;
            ready.push_back(number);
        }
    }
}

/// The calls that wait for one server, in a queue for each slot.
#[derive(Default)]
pub(crate) struct CallQueues<C: Callers> {
    by_slot: HashMap<u16, SlotQueue<C>, foldhash::fast::FixedState>,
    /// True if calls of several slots travel together. Only Redis 7 and newer can do that.
    crosses_slots: bool,
    /// The slots with queues that may send.
    ready: VecDeque<u16>,
    /// Calls that another node sent here with ASK.
    asking: VecDeque<PendingCall<C>>,
    /// The calls in all queues.
    waiting: usize,
}

impl<C: Callers> CallQueues<C> {
    pub(crate) fn new(crosses_slots: bool) -> Self {
        Self { crosses_slots, ..Self::default() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a call: as the first of its queue, or as the last.
    pub(crate) fn push(&mut self, call: PendingCall<C>, first: bool, next_moment: &mut NextMoment) {
        next_moment.set(call.state.attempt_deadline);
        self.waiting += 1;
        let number = match batch_key(&call) {
            Some((_, true)) => call.slot | WITH_COMPANIONS,
            Some((_, false)) if self.crosses_slots && call.requests.len() == 1 => ALL_SLOTS,
            _ => call.slot,
        };
        let queue = self.by_slot.entry(number).or_default();
        if first {
            queue.waiting.push_front(call)
        } else {
            queue.waiting.push_back(call)
        }
        queue.list(number, &mut self.ready);
    }

    /// Adds a call that another node sent here with ASK.
    pub(crate) fn push_asking(&mut self, call: PendingCall<C>, first: bool, next_moment: &mut NextMoment) {
        next_moment.set(call.state.attempt_deadline);
        self.waiting += 1;
        if first { self.asking.push_front(call) } else { self.asking.push_back(call) }
    }

    /// Takes the next call that another node sent here with ASK. Its slot counts it as a batch in flight.
    pub(crate) fn pop_asking(&mut self) -> Option<PendingCall<C>> {
        let call = self.asking.pop_front()?;
        self.waiting -= 1;
        self.by_slot.entry(call.slot).or_default().sent(1);
        Some(call)
    }

    /// The next queue that may send.
    pub(crate) fn pop_ready(&mut self) -> Option<u16> {
        self.ready.pop_front()
    }

    /// If a batch may be sent now, passes `take` the oldest calls of a queue that may travel together. Returns their
    /// number. `timeout` is the time that a call may take.
    pub(crate) fn take_batch(
        &mut self,
        number: u16,
        max_batch: usize,
        timeout: Duration,
        now: Instant,
        next_moment: &mut NextMoment,
        mut take: impl FnMut(PendingCall<C>),
    ) -> usize {
        let Some(queue) = self.by_slot.get_mut(&number) else { return 0 };
        queue.listed = false;
        let Some(delay_ends) = queue.delay_ends(timeout) else { return 0 };
        if !queue.may_send(max_batch) && delay_ends > now {
            next_moment.set(delay_ends);
            return 0;
        }
        let Some(first) = queue.waiting.pop_front() else { return 0 };
        let key = batch_key(&first);
        take(first);
        let mut count = 1;
        while key.is_some()
            && count < max_batch
            && queue.waiting.front().is_some_and(|call| batch_key(call) == key)
            && let Some(call) = queue.waiting.pop_front()
        {
            take(call);
            count += 1;
        }
        self.waiting -= count;
        queue.sent(count);
        queue.list(number, &mut self.ready);
        count
    }

    /// A batch of that queue is no longer in flight, so the queue may send.
    pub(crate) fn note_completed(&mut self, number: u16, calls: usize) {
        if let Some(queue) = self.by_slot.get_mut(&number) {
            (queue.in_flight, queue.calls_in_flight) = (queue.in_flight - 1, queue.calls_in_flight - calls);
            queue.list(number, &mut self.ready);
        }
    }

    /// Lists every queue with waiting calls, because the connection is new.
    pub(crate) fn list_all(&mut self) {
        self.ready.clear();
        for (number, queue) in &mut self.by_slot {
            queue.listed = false;
            queue.list(*number, &mut self.ready);
        }
    }

    /// From now on a batch has calls of one slot only.
    pub(crate) fn keep_slots_apart(&mut self, next_moment: &mut NextMoment) {
        self.crosses_slots = false;
        let Some(queue) = self.by_slot.get_mut(&ALL_SLOTS) else { return };
        let waiting = std::mem::take(&mut queue.waiting);
        self.waiting -= waiting.len();
        waiting.into_iter().for_each(|call| self.push(call, false, next_moment));
    }

    /// Takes every call.
    pub(crate) fn take_all(&mut self) -> Vec<PendingCall<C>> {
        self.waiting = 0;
        self.ready.clear();
        let mut calls: Vec<PendingCall<C>> = self.asking.drain(..).collect();
        for queue in self.by_slot.values_mut() {
            queue.listed = false;
            calls.extend(queue.waiting.drain(..));
        }
        calls
    }

    /// Takes the calls for which `is_taken` holds. It looks at all calls, because a call that was sent elsewhere before
    /// stands in front of older ones.
    pub(crate) fn take_if(&mut self, is_taken: impl Fn(&PendingCall<C>) -> bool) -> Vec<PendingCall<C>> {
        let mut taken = Vec::new();
        for waiting in self.by_slot.values_mut().map(|queue| &mut queue.waiting).chain([&mut self.asking]) {
            if waiting.iter().any(&is_taken) {
                for call in std::mem::take(waiting) {
                    if is_taken(&call) { taken.push(call) } else { waiting.push_back(call) }
                }
            }
        }
        self.waiting -= taken.len();
        taken
    }

    /// Sets `next_moment`, and lists the queues with an oldest call that has waited long enough for others.
    pub(crate) fn handle_timeout(&mut self, timeout: Duration, now: Instant, next_moment: &mut NextMoment) {
        self.asking.iter().for_each(|call| next_moment.set(call.state.attempt_deadline));
        for (number, queue) in &mut self.by_slot {
            queue.waiting.iter().for_each(|call| next_moment.set(call.state.attempt_deadline));
            match queue.delay_ends(timeout).filter(|_| !queue.listed) {
                Some(end) if end <= now => queue.list(*number, &mut self.ready),
                Some(end) => next_moment.set(end),
                None => {}
            }
        }
    }

    /// Forgets queues without a call, once there are many.
    pub(crate) fn forget_idle(&mut self) {
        if self.by_slot.len() > MAX_IDLE_QUEUES {
            self.by_slot.retain(|_, queue| queue.listed || queue.in_flight > 0 || !queue.waiting.is_empty());
        }
    }

    /// Checks that little is kept while no call waits.
    #[cfg(test)]
    pub(crate) fn check_bounds(&self) {
        assert_eq!(self.waiting, 0, "a call still waits");
        assert!(self.by_slot.values().all(|queue| queue.waiting.is_empty()) && self.asking.is_empty());
        assert!(self.by_slot.len() <= MAX_IDLE_QUEUES);
    }
}

/// Calls with the same key may travel together. `None` for a call that travels by itself.
fn batch_key<C: Callers>(call: &PendingCall<C>) -> Option<(Option<u64>, bool)> {
    match call.grouping {
        Grouping::Independent if !call.state.alone => Some((call.time, call.requests[0].plan.stored.has_companions)),
        _ => None,
    }
}
