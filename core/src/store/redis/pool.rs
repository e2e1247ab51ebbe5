//! Blocking connections: each call uses one on its own thread, without a hop.

use parking_lot::Mutex;
use redis::{Connection, ConnectionLike, Value};

use super::{Target, failure, is_unknown_script};
use crate::error::{Error, Result};
use crate::script::Batch;

/// Idle connections; the one used last is used next, so that few stay warm.
pub(super) struct Pool {
    target: Target,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(target: Target) -> Self {
        Self { target, idle: Mutex::default() }
    }

    fn failure(&self, error: &redis::RedisError) -> Error {
        failure::of(error, &self.target.shown, self.target.timeout)
    }

    fn connect(&self) -> Result<Connection> {
        let timeout = self.target.timeout;
        let connect = || {
            let connection = self.target.client.get_connection_with_timeout(timeout)?;
            connection.set_read_timeout(Some(timeout))?;
            connection.set_write_timeout(Some(timeout))?;
            Ok(connection)
        };
        connect().map_err(|error: redis::RedisError| self.failure(&error))
    }

    fn with<T>(&self, run: impl FnOnce(&mut Connection) -> redis::RedisResult<T>) -> Result<T> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        // A connection that failed may be out of step: it is not used again.
        let result = run(&mut connection).map_err(|error| self.failure(&error))?;
        self.idle.lock().push(connection);
        Ok(result)
    }

    pub(super) fn call(&self, batch: &Batch) -> Result<Value> {
        self.with(|connection| {
            let reply = connection.req_command(&batch.command())?;
            if is_unknown_script(&reply) {
                return connection.req_command(&batch.command_in_full());
            }
            Ok(reply)
        })
    }

    pub(super) fn ping(&self) -> Result<()> {
        self.with(|connection| redis::cmd("PING").query(connection))
    }

    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }
}
