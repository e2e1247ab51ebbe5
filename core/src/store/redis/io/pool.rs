//! Idle connections to one server. The one that was used last is used next, so that few stay warm.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use redis::Value;

use super::connection::{BlockingConnection, Connector, Interrupted};
use crate::store::redis::protocol::{Exchange, Failure, Server, is_unknown_script};
use crate::store::redis::script::Batch;

/// See the module.
pub(crate) struct Pool {
    pub(crate) server: Server,
    connector: Arc<Connector>,
    idle: Mutex<Vec<BlockingConnection>>,
}

impl Pool {
    pub(crate) fn new(server: Server, connector: Arc<Connector>) -> Self {
        Self { server, connector, idle: Mutex::default() }
    }

    /// A connection that the server has not closed. A new one was greeted: a server that does not respond gets no calls,
    /// which it would run later.
    fn take(&self, now: Instant, deadline: Instant) -> Result<BlockingConnection, Failure> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut connection) = idle else { return self.connector.open(&self.server, deadline) };
            if connection.is_usable(now) {
                return Ok(connection);
            }
            // What ended this connection has most likely ended the others.
            self.clear();
        }
    }

    /// Sends a script call, after ASKING where another node sent it here, and waits for its reply.
    pub(crate) fn call(&self, batch: &Batch, asking: bool, now: Instant, deadline: Instant) -> Result<Value, Failure> {
        let mut connection = self.take(now, deadline)?;
        match exchange(&mut connection, batch, asking, deadline) {
            Ok(reply) => {
                connection.touch(now);
                self.idle.lock().push(connection);
                Ok(reply)
            }
            // The connection is out of step, and what ended it may have ended the others.
            Err(interrupted) => {
                self.clear();
                Err(self.server.failure(&interrupted.error, interrupted.sent))
            }
        }
    }

    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }
}

/// The script by its digest; the whole script where the server does not know it.
fn exchange(
    connection: &mut BlockingConnection,
    batch: &Batch,
    asking: bool,
    deadline: Instant,
) -> Result<Value, Interrupted> {
    let mut reply = Value::Nil;
    for in_full in [false, true] {
        let mut commands = Vec::new();
        let count = batch.write(asking, in_full, &mut commands);
        let mut exchange = Exchange::new(&commands, count);
        connection.run(&mut exchange, deadline)?;
        reply = exchange.into_replies().pop().unwrap_or(Value::Nil);
        if !is_unknown_script(&reply) {
            break;
        }
    }
    Ok(reply)
}
