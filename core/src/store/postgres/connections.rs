//! The connections of a process to the servers of one URL.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::{Client, Statement};

use super::failure::PostgresFailure;
use crate::process::lock::Mutex;
use crate::store::swap::CallId;

/// A connection, and the statements that were used on it, by their address. A statement is prepared when it is used again.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) used: Vec<(usize, Option<Statement>)>,
}

type Connected = Result<Connection, PostgresFailure>;

/// A call takes the first connection that becomes free, also if another call began the attempt to connect. So an attempt that
/// takes longer than a call still brings its connection, or the reason of its failure, to the next call.
pub(super) struct Connections {
    max: usize,
    waiting: Mutex<Waiting>,
    /// The attempts to connect that may go on at once.
    attempts: Arc<Semaphore>,
    /// Those in a transaction that has locked rows, by the call that locked them.
    pub(super) locking: Mutex<HashMap<CallId, Connection>>,
}

#[derive(Default)]
struct Waiting {
    idle: Vec<Connection>,
    calls: VecDeque<oneshot::Sender<Connected>>,
}

pub(super) enum NextConnection {
    Idle(Connection),
    /// With the permit of an attempt to connect that the call has to begin.
    Later(oneshot::Receiver<Connected>, Option<OwnedSemaphorePermit>),
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        let attempts = Arc::new(Semaphore::new(max));
        Self { max, waiting: Mutex::default(), attempts, locking: Mutex::default() }
    }

    pub(super) fn take(&self) -> NextConnection {
        let mut waiting = self.waiting.lock();
        while let Some(connection) = waiting.idle.pop() {
            if !connection.client.is_closed() {
                return NextConnection::Idle(connection);
            }
        }
        let (tells, told) = oneshot::channel();
        waiting.calls.push_back(tells);
        let permit = self.permit(&mut waiting);
        NextConnection::Later(told, permit)
    }

    /// One more attempt, if more calls wait than attempts go on.
    fn permit(&self, waiting: &mut Waiting) -> Option<OwnedSemaphorePermit> {
        waiting.calls.retain(|call| !call.is_closed());
        let attempts = self.max - self.attempts.available_permits();
        (waiting.calls.len() > attempts).then(|| Arc::clone(&self.attempts).try_acquire_owned().ok()).flatten()
    }

    /// Ends an attempt. Returns the permit of the next one, if a call needs it.
    pub(super) fn end_attempt(
        &self,
        connected: Connected,
        permit: OwnedSemaphorePermit,
    ) -> Option<OwnedSemaphorePermit> {
        let mut waiting = self.waiting.lock();
        self.give(&mut waiting, connected);
        drop(permit);
        self.permit(&mut waiting)
    }

    pub(super) fn keep(&self, connection: Connection) {
        if !connection.client.is_closed() {
            self.give(&mut self.waiting.lock(), Ok(connection));
        }
    }

    /// Ends the idle ones.
    pub(super) fn close(&self) {
        self.waiting.lock().idle.clear();
    }

    fn give(&self, waiting: &mut Waiting, mut connected: Connected) {
        while let Some(call) = waiting.calls.pop_front() {
            match call.send(connected) {
                Ok(()) => return,
                // The call has given up.
                Err(returned) => connected = returned,
            }
        }
        if let Ok(connection) = connected
            && waiting.idle.len() < self.max
        {
            waiting.idle.push(connection);
        }
    }
}
