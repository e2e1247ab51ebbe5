//! How a pipeline forms batches and sends them.

use std::sync::Arc;
use std::time::Instant;

use super::{Callers, ServerPipeline};
use crate::store::redis::protocol::batching::{MAX_IDLE_QUEUES, MAX_IN_FLIGHT_PER_SERVER, batch_key};
use crate::store::redis::protocol::connection::ConnectionId;
use crate::store::redis::protocol::in_flight::{BatchKind, BatchMember, InFlight, ScriptCall};
use crate::store::redis::protocol::in_step::{self, MAX_SHORT_REPLY};
use crate::store::redis::script::Batch;

impl<C: Callers> ServerPipeline<C> {
    /// Forms the batches that may be sent now; then the bytes that are to be sent.
    pub(crate) fn transmit(&mut self, id: ConnectionId, now: Instant) -> &[u8] {
        if self.connection.is_some() && self.silent_since.is_none() && self.waiting > 0 {
            self.form_batches(now);
        }
        self.unsent(id)
    }

    /// The bytes that are to be sent, without new batches.
    pub(crate) fn unsent(&self, id: ConnectionId) -> &[u8] {
        match &self.connection {
            Some(connection) if connection.id == id => connection.transmit(),
            _ => &[],
        }
    }

    /// So many bytes of `transmit` were sent.
    pub(crate) fn handle_sent(&mut self, id: ConnectionId, count: usize) {
        if let Some(connection) = self.connection.as_mut().filter(|connection| connection.id == id) {
            connection.handle_sent(count);
        }
    }

    fn form_batches(&mut self, now: Instant) {
        while self.in_flight.len() < MAX_IN_FLIGHT_PER_SERVER
            && let Some(call) = self.asking.pop_front()
        {
            self.waiting -= 1;
            let (queue, time, grouping) = (call.slot, call.time, call.grouping);
            self.queues.entry(queue).or_default().sent(1);
            let (member, requests) = BatchMember::new(call);
            self.options.directory.batch_formed(requests.len());
            let batch = Batch::new(Arc::clone(&self.options.prefix), time, grouping, requests);
            let members = vec![member];
            self.send_batch(ScriptCall { batch, members, queue, in_full: false, asking: true, doubtful: None });
        }
        while self.in_flight.len() < MAX_IN_FLIGHT_PER_SERVER
            && let Some(queue) = self.ready.pop_front()
        {
            if let Some(batch) = self.form_batch(queue, now) {
                self.send_batch(batch);
            }
        }
        if self.queues.len() > MAX_IDLE_QUEUES {
            self.queues.retain(|_, queue| queue.listed || !queue.is_idle());
        }
    }

    /// The oldest calls of a queue that may travel together, if a batch may be sent now.
    fn form_batch(&mut self, number: u16, now: Instant) -> Option<ScriptCall<C>> {
        let queue = self.queues.get_mut(&number)?;
        queue.listed = false;
        let delay_ends = queue.delay_ends(self.server.timeout)?;
        if !queue.may_send(self.options.max_batch) && delay_ends > now {
            self.wake_at(delay_ends);
            return None;
        }
        let first = queue.waiting.pop_front()?;
        let (key, time, grouping) = (batch_key(&first), first.time, first.grouping);
        let (slot, mut over_slots) = (first.slot, false);
        let (member, mut requests) = BatchMember::new(first);
        let mut members = vec![member];
        while key.is_some()
            && members.len() < self.options.max_batch
            && queue.waiting.front().is_some_and(|call| batch_key(call) == key)
            && let Some(call) = queue.waiting.pop_front()
        {
            over_slots |= call.slot != slot;
            let (member, more) = BatchMember::new(call);
            members.push(member);
            requests.extend(more);
        }
        self.waiting -= members.len();
        queue.sent(members.len());
        if !queue.waiting.is_empty() {
            queue.listed = true;
            self.ready.push_back(number);
        }
        self.options.directory.batch_formed(requests.len());
        let mut batch = Batch::new(Arc::clone(&self.options.prefix), time, grouping, requests);
        if over_slots {
            batch = batch.over_slots();
        }
        Some(ScriptCall { batch, members, queue: number, in_full: false, asking: false, doubtful: None })
    }

    /// Writes a batch. Its queue has counted it already.
    pub(super) fn send_batch(&mut self, batch: ScriptCall<C>) {
        let Some(connection) = &mut self.connection else {
            self.note_completed(batch.queue, batch.members.len());
            return self.requeue(batch);
        };
        let begin = connection.end();
        batch.batch.write(batch.asking, batch.in_full, connection.out());
        let end = connection.end();
        if batch.asking {
            let max_reply = MAX_SHORT_REPLY;
            self.in_flight.push_back(InFlight { kind: BatchKind::Asking, begin, end, max_reply });
        }
        let max_reply = batch.batch.max_reply();
        self.in_flight.push_back(InFlight { kind: BatchKind::Script(batch), begin, end, max_reply });
    }

    /// Asks whether the connection is in step: the error that a batch got decides whether it is sent again.
    pub(super) fn send_question(&mut self, batch: ScriptCall<C>) {
        let number = batch.batch.number();
        self.write_question(number, BatchKind::Script(batch));
    }

    pub(super) fn write_question(&mut self, number: u32, kind: BatchKind<C>) {
        let Some(connection) = &mut self.connection else { return };
        let begin = connection.end();
        in_step::write_question(number, connection.out());
        let end = connection.end();
        self.in_flight.push_back(InFlight { kind, begin, end, max_reply: MAX_SHORT_REPLY });
    }
}
