//! What a pipeline does about calls that are late and about a server that is silent.

use std::io;
use std::time::Instant;

use super::connecting::{MAX_ATTEMPTS, NEXT_ATTEMPT};
use super::{Callers, Effects, Obstacle, ServerPipeline};
use crate::store::redis::protocol::in_flight::BatchKind;

impl<C: Callers> ServerPipeline<C> {
    /// Gives up what is late, and finds out when the next call is.
    pub(crate) fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.next_timeout.is_none_or(|next| next > now) {
            return;
        }
        let mut next: Option<Instant> = None;
        let mut wake_at = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        let mut late = Vec::new();
        let queues = self.queues.values_mut().map(|queue| &mut queue.waiting).chain(std::iter::once(&mut self.asking));
        for waiting in queues {
            // A call that was sent elsewhere before stands in front of older ones, so all are looked at.
            if waiting.iter().any(|call| call.state.attempt_deadline <= now) {
                for call in std::mem::take(waiting) {
                    if call.state.attempt_deadline <= now { late.push(call) } else { waiting.push_back(call) }
                }
            }
            waiting.iter().for_each(|call| wake_at(call.state.attempt_deadline));
        }
        self.waiting -= late.len();
        for (slot, queue) in &mut self.queues {
            match queue.delay_ends(self.server.timeout) {
                Some(end) if !queue.listed && end <= now => {
                    queue.listed = true;
                    self.ready.push_back(*slot);
                }
                Some(end) if !queue.listed => wake_at(end),
                _ => {}
            }
        }
        let mut silent = false;
        for sent in &mut self.in_flight {
            if let BatchKind::Script(batch) = &mut sent.kind {
                silent |= batch.expire(now, &mut wake_at, &mut late);
            }
        }
        self.next_timeout = next;
        // Only a read on a replica has time left after this, and a read may run twice.
        let failure = self.server.failure(&io::ErrorKind::TimedOut.into(), false);
        effects.server_was_silent |= !late.is_empty();
        for call in late {
            if call.state.deadline <= now {
                effects.completions.fail(call.recipient, &failure.error);
            } else {
                self.give_back(call, Obstacle::Failed(failure.clone()), effects);
            }
        }
        if silent && self.silent_since.is_none() {
            self.silent_since = Some(now);
            self.probe();
        }
        self.connect_again_if_silent(now, effects);
    }

    /// TCP sends lost packets again later and later, so a second connection is often faster. None is opened while no call
    /// waits.
    pub(super) fn connect_again_if_silent(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.waiting == 0 {
            return;
        }
        let again = match (self.attempts.last(), self.silent_since) {
            (Some(newest), _) if self.attempts.len() < MAX_ATTEMPTS => newest.began + NEXT_ATTEMPT,
            (None, Some(since)) => since + NEXT_ATTEMPT,
            _ => return,
        };
        if now < again {
            self.wake_at(again);
        } else {
            self.connect(now, effects);
        }
    }

    /// Recalls what was not sent yet, and sends a PING instead: its reply says that the server is there again.
    pub(super) fn probe(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let sent = connection.sent();
        let at = self.in_flight.iter().position(|batch| batch.begin >= sent).unwrap_or(self.in_flight.len());
        let recalled = self.in_flight.split_off(at);
        if let Some(first) = recalled.front() {
            connection.recall(first.begin);
        }
        let number = connection.end() as u32;
        self.write_question(number, BatchKind::Probe(number));
        for batch in recalled.into_iter().rev() {
            match batch.kind {
                BatchKind::Script(batch) if batch.doubtful.is_some() && batch.is_awaited() => self.send_question(batch),
                BatchKind::Script(batch) => {
                    self.note_completed(batch.queue, batch.members.len());
                    self.requeue(batch);
                }
                BatchKind::Asking | BatchKind::Probe(_) => {}
            }
        }
    }
}
