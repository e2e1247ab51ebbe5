//! Which calls travel as one batch, and when a batch is sent.
//!
//! Calls of one slot that wait at the same moment travel as one script call; to a node of a cluster with Redis 7 or newer, also
//! calls of several slots. A call that is alone is sent at once. While
//! batches are in flight new calls wait, and are sent when there are enough of them or when nothing is in flight any more.
//! Sending before the reply is back keeps the server busy while the callers work.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::pending_call::{Callers, PendingCall};
use crate::store::redis::script::Grouping;

/// Batches of one slot in flight at once.
const MAX_IN_FLIGHT: usize = 4;
/// Batches of one server in flight at once, as when each call travels alone.
pub(crate) const MAX_IN_FLIGHT_PER_SERVER: usize = 1_024;
/// While a batch is in flight, so many waiting calls make another one: a quarter of the calls in flight, within these
/// bounds. Few callers get few small batches, so that they and the server need not take turns; many callers get large
/// batches, which cost the server less.
const BATCH_THRESHOLD: RangeInclusive<usize> = 8..=32;
/// No call waits longer than this for others: over a slow link batches follow each other, however small they are.
pub(crate) const MAX_BATCH_DELAY: Duration = Duration::from_millis(12);
/// Slots that are remembered although no call waits there.
pub(crate) const MAX_IDLE_QUEUES: usize = 1_024;

/// The calls of one slot that wait, or those of all slots, and what is in flight there.
pub(crate) struct SlotQueue<C: Callers> {
    pub(crate) waiting: VecDeque<PendingCall<C>>,
    in_flight: usize,
    /// Calls in the batches in flight.
    calls_in_flight: usize,
    /// Whether it is listed as one that may send.
    pub(crate) listed: bool,
}

impl<C: Callers> Default for SlotQueue<C> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0, calls_in_flight: 0, listed: false }
    }
}

impl<C: Callers> SlotQueue<C> {
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty()
    }

    /// When the oldest call has waited long enough for others. `timeout` is how long a call may take.
    pub(crate) fn delay_ends(&self, timeout: Duration) -> Option<Instant> {
        Some(self.waiting.front()?.state.deadline + MAX_BATCH_DELAY - timeout.max(MAX_BATCH_DELAY))
    }

    /// Whether a batch may be sent before the oldest call has waited long enough.
    pub(crate) fn may_send(&self, max_batch: usize) -> bool {
        let threshold = (self.calls_in_flight / 4).clamp(*BATCH_THRESHOLD.start(), *BATCH_THRESHOLD.end());
        max_batch == 1 || self.in_flight == 0 || self.in_flight < MAX_IN_FLIGHT && self.waiting.len() >= threshold
    }

    pub(crate) const fn sent(&mut self, calls: usize) {
        (self.in_flight, self.calls_in_flight) = (self.in_flight + 1, self.calls_in_flight + calls);
    }

    pub(crate) const fn completed(&mut self, calls: usize) {
        (self.in_flight, self.calls_in_flight) = (self.in_flight - 1, self.calls_in_flight - calls);
    }
}

/// The queue of calls that travel together whatever their slots are.
pub(crate) const ALL_SLOTS: u16 = u16::MAX;

/// Whether a call can travel with calls of other slots.
pub(crate) fn may_cross_slots<C: Callers>(call: &PendingCall<C>) -> bool {
    batch_key(call).is_some_and(|(_, has_companions)| !has_companions) && call.requests.len() == 1
}

/// What two calls must have in common to travel together; `None` for a call that travels by itself.
pub(crate) fn batch_key<C: Callers>(call: &PendingCall<C>) -> Option<(Option<u64>, bool)> {
    match call.grouping {
        Grouping::Independent if !call.state.alone => Some((call.time, call.requests[0].plan.stored.has_companions)),
        _ => None,
    }
}
