//! How a pipeline gets its connection. An attempt that is silent is joined by another; the first that succeeds is used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Action, Callers, Effects, Obstacle, PipelinedConnection, ServerPipeline};
use crate::error::ErrorKind;
use crate::store::redis::protocol::connection::ConnectionId;
use crate::store::redis::protocol::failure::{self, Failure};
use crate::store::redis::protocol::schedule::DiscoverySchedule;

/// An attempt to connect that has not succeeded within this time is joined by another.
pub(super) const NEXT_ATTEMPT: Duration = Duration::from_millis(250);
/// Attempts at the same time: as many as begin while the first one lasts.
pub(super) const MAX_ATTEMPTS: usize = 4;

/// An attempt to connect.
pub(super) struct ConnectAttempt {
    id: ConnectionId,
    pub(super) began: Instant,
}

impl<C: Callers> ServerPipeline<C> {
    pub(super) fn connect_if_needed(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.connection.is_none() && self.attempts.is_empty() && self.waiting > 0 {
            self.connect(now, effects);
        } else if self.silent_since.is_some() {
            self.connect_again_if_silent(now, effects);
        }
    }

    /// An attempt lasts long enough for a lost packet and a slow handshake, even where a call has less time.
    pub(super) fn connect(&mut self, now: Instant, effects: &mut Effects<C>) {
        let id = ConnectionId { pipeline: self.index, number: effects.next_number() };
        let deadline = now + DiscoverySchedule::duration(self.server.timeout);
        effects.actions.push_back(Action::Connect { id, server: Arc::clone(&self.server), deadline });
        self.attempts.push(ConnectAttempt { id, began: now });
        self.wake_at(now + NEXT_ATTEMPT);
    }

    /// A connection is open. Says whether it is used; if not, the driver closes it.
    pub(crate) fn handle_connected(&mut self, id: ConnectionId, effects: &mut Effects<C>) -> bool {
        let Some(index) = self.attempts.iter().position(|attempt| attempt.id == id) else { return false };
        self.attempts.remove(index);
        for attempt in std::mem::take(&mut self.attempts) {
            effects.actions.push_back(Action::Close(attempt.id));
        }
        // An older connection has been silent for long.
        self.drop_connection(&failure::closed_by_server(), effects);
        self.connection = Some(PipelinedConnection::new(id));
        self.ready = self.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty()).map(|(slot, _)| *slot).collect();
        self.queues.values_mut().for_each(|queue| queue.listed = !queue.waiting.is_empty());
        true
    }

    pub(crate) fn handle_connect_failed(
        &mut self,
        id: ConnectionId,
        failure: Failure,
        now: Instant,
        effects: &mut Effects<C>,
    ) {
        let Some(index) = self.attempts.iter().position(|attempt| attempt.id == id) else { return };
        self.attempts.remove(index);
        match (&self.connection, failure.error.kind()) {
            // Calls that wait have their own deadlines; the next attempt begins at once.
            (_, ErrorKind::StoreTimeout) => self.connect_if_needed(now, effects),
            // The old connection may still answer. A server that refuses is not asked again at once.
            (Some(_), _) => {
                self.silent_since = self.silent_since.map(|_| now);
                self.connect_if_needed(now, effects);
            }
            (None, _) => {
                for call in self.take_waiting() {
                    self.give_back(call, Obstacle::Failed(failure.clone()), effects);
                }
            }
        }
    }

    /// Opens a new connection before the next call, if none is in flight: the server may have another role now.
    pub(crate) fn reconnect(&mut self, now: Instant, effects: &mut Effects<C>) {
        if self.in_flight.is_empty()
            && let Some(connection) = self.connection.take()
        {
            effects.actions.push_back(Action::Close(connection.id));
            self.silent_since = None;
            self.fail_bound_calls(effects);
            self.connect_if_needed(now, effects);
        }
    }

    /// Closes the connection and gives up attempts to open one.
    pub(crate) fn retire(self, effects: &mut Effects<C>) {
        let attempts = self.attempts.iter().map(|attempt| attempt.id);
        let ids = self.connection.iter().map(|connection| connection.id).chain(attempts);
        effects.actions.extend(ids.map(Action::Close));
    }
}
