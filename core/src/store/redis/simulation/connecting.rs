//! How simulated connections begin and end.

use std::sync::Arc;

use super::network::Connection;
use super::servers::Servers;
use super::world::World;
use crate::store::redis::protocol::Failure;

impl World {
    pub(super) fn connected(&mut self, index: usize) {
        let attempt = &self.attempts[index];
        if attempt.given_up {
            return;
        }
        let (id, server) = (attempt.id, super::servers::server_at(&attempt.server.address));
        let state = self.servers.state(server);
        if state.down || state.unreachable_until > self.now {
            return self.connect_fails(index);
        }
        let expected = Arc::clone(&attempt.server);
        let greeted = self.greet(&expected, server);
        let now = self.instant(self.now);
        match greeted {
            Err(failure) => self.router.handle_connect_failed(id, failure, now),
            Ok(()) => {
                if self.router.handle_connected(id, now) {
                    let mut connection = Connection::new(id, server);
                    if self.servers.servers[server].is_replica {
                        Servers::mark_readonly(&mut connection.session);
                    }
                    self.connections.push(connection);
                }
            }
        }
        self.attempts[index].given_up = true;
    }

    pub(super) fn connect_fails(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        if std::mem::replace(&mut attempt.given_up, true) {
            return;
        }
        let late = attempt.deadline <= self.now;
        let kind = if late { std::io::ErrorKind::TimedOut } else { std::io::ErrorKind::ConnectionRefused };
        let failure: Failure = attempt.server.failure(&kind.into(), false);
        let id = attempt.id;
        self.router.handle_connect_failed(id, failure, self.instant(self.now));
    }

    /// The system gives up connections that nothing answers. Of a store with one server they stay: its calls find out.
    pub(super) fn close_half_open(&mut self) {
        for connection in self.connections.iter_mut().filter(|connection| connection.half_open) {
            (connection.half_open, connection.closed_by_server) = (false, true);
        }
    }
}
