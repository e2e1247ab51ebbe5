//! Idle connections to one server. The one that was used last is used next, so that few stay warm.

use std::sync::Arc;
use std::time::Instant;

use crate::process::lock::Mutex;
use redis::Value;

use super::connection::{BlockingConnection, Connector, Interrupted};
use crate::store::redis::protocol::{
    Exchange, Failure, MAX_SHORT_REPLY, Obstacle, ReplyMeaning, Server, is_in_step, out_of_step, script_pause,
    write_question,
};
use crate::store::redis::script::Batch;

/// The idle connections to one server.
pub(crate) struct Pool {
    pub(crate) server: Server,
    connector: Arc<Connector>,
    idle: Mutex<Vec<BlockingConnection>>,
}

impl Pool {
    pub(crate) fn new(server: Server, connector: Arc<Connector>) -> Self {
        Self { server, connector, idle: Mutex::default() }
    }

    /// A connection that the server has not closed. A new one is greeted first, so that a server that does not respond
    /// gets no calls that it would run later.
    fn take(&self, now: Instant, deadline: Instant) -> Result<BlockingConnection, Failure> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut connection) = idle else { return self.connector.open(&self.server, deadline) };
            if connection.is_usable(now) {
                return Ok(connection);
            }
            // The cause that ended this connection has most likely ended the others.
            self.clear();
        }
    }

    /// Sends a script call and waits for its reply. `asking` is true if another node sent the call here with ASK.
    /// `several` is true if the store has several servers.
    pub(crate) fn call(
        &self,
        batch: &mut Batch,
        asking: bool,
        several: bool,
        now: Instant,
        deadline: Instant,
    ) -> Result<Value, Obstacle> {
        let mut connection = self.take(now, deadline).map_err(Obstacle::Failed)?;
        match self.exchange(&mut connection, batch, asking, several, deadline) {
            Ok(reply) => {
                if connection.is_in_step() {
                    connection.touch(now);
                    self.idle.lock().push(connection);
                }
                reply
            }
            // The connection is out of step, and the cause may have ended the others.
            Err(interrupted) => {
                self.clear();
                Err(Obstacle::Failed(self.server.failure(&interrupted.error, interrupted.sent)))
            }
        }
    }

    /// Sends the script by its digest, or in full if the server does not know it.
    fn exchange(
        &self,
        connection: &mut BlockingConnection,
        batch: &mut Batch,
        asking: bool,
        several: bool,
        deadline: Instant,
    ) -> Result<Result<Value, Obstacle>, Interrupted> {
        let (mut in_full, mut has_paused) = (false, false);
        loop {
            let mut commands = Vec::new();
            let count = batch.write(asking, in_full, &mut commands);
            let mut exchange = Exchange::new(&commands, count, batch.max_reply());
            connection.run(&mut exchange, deadline)?;
            let reply = exchange.into_replies().pop().unwrap_or(Value::Nil);
            let meaning = ReplyMeaning::of(&reply, batch, &self.server, several);
            if meaning.is_doubtful(&reply) {
                check_step(connection, batch.number(), deadline)?;
            }
            match meaning {
                ReplyMeaning::UnknownScript if !has_paused => {
                    has_paused = true;
                    std::thread::sleep(script_pause(self.server.timeout));
                }
                ReplyMeaning::UnknownScript if !in_full => in_full = true,
                ReplyMeaning::OtherTime(time) => drop(batch.go_by(Some(time))),
                // A blocking call has only one slot, so it cannot be `NotAsOne`.
                ReplyMeaning::Answer | ReplyMeaning::UnknownScript | ReplyMeaning::NotAsOne { .. } => {
                    return Ok(Ok(reply));
                }
                ReplyMeaning::NotServed(obstacle) => return Ok(Err(obstacle)),
                ReplyMeaning::OutOfStep => return Err(Interrupted { error: out_of_step(), sent: true }),
            }
        }
    }

    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }
}

/// Checks that an error belongs to this call. Otherwise the call may have run.
fn check_step(connection: &mut BlockingConnection, number: u32, deadline: Instant) -> Result<(), Interrupted> {
    let mut question = Vec::new();
    write_question(number, &mut question);
    let mut exchange = Exchange::new(&question, 1, MAX_SHORT_REPLY);
    connection.run(&mut exchange, deadline).map_err(|interrupted| Interrupted { sent: true, ..interrupted })?;
    if exchange.into_replies().iter().all(|reply| is_in_step(reply, number)) {
        return Ok(());
    }
    Err(Interrupted { error: out_of_step(), sent: true })
}
