//! The simulated host: its callers, and its driver, which works like `io/engine.rs` with the network and the clock of
//! the schedule.

use std::sync::Arc;

use redis::Value;

use super::lies::lie_much;
use super::network::Connection;
use super::servers::{Servers, server_at};
use super::world::{Asked, Attempt, Event, World};
use crate::store::redis::protocol::{
    Action, CallState, Completed, Failure, Handshake, PendingCall, Recipient, Server, closed_by_server,
};
use crate::store::redis::script::{Grouping, Request};
use crate::store::request::Operation;

impl World {
    /// The handshake with a server.
    pub(super) fn greet(&mut self, expected: &Server, server: usize) -> Result<(), Failure> {
        let handshake = Handshake::new(&expected.login, expected.role);
        let mut replies = vec![self.servers.hello(server)];
        replies.resize(handshake.reply_count(), Value::Okay);
        if self.is_lying() {
            replies.iter_mut().for_each(|reply| lie_much(reply, &mut self.random));
        }
        handshake.check(&replies, &expected.login, expected.role, &expected.shown)
    }

    /// Does all that can be done now, unless the host is busy.
    pub(super) fn drive(&mut self) {
        if self.busy_until > self.now {
            return self.wake_at(self.busy_until);
        }
        let now = self.instant(self.now);
        for step in 0.. {
            assert!(step < 1_000, "the driver never comes to rest");
            let mut progressed = self.read();
            if self.router.poll_timeout().is_some_and(|due| due <= now) {
                self.router.handle_timeout(now);
                progressed = true;
            }
            progressed |= self.act();
            self.write();
            progressed |= self.complete();
            if !progressed {
                break;
            }
        }
        let due = self.router.poll_timeout().map(|due| self.micros(due));
        if let Some(deadline) = self.ledger.next_deadline() {
            assert!(deadline > self.now, "a call is not given up at its deadline");
            assert!(due.is_some_and(|due| due <= deadline), "nothing is due by the deadline of a call");
        }
        if let Some(due) = due {
            self.wake_at(due);
        }
    }

    fn wake_at(&mut self, at: u64) {
        if self.wakes_at.is_none_or(|wakes| wakes > at) {
            self.wakes_at = Some(at);
            self.schedule(at, Event::Wake);
        }
    }

    fn read(&mut self) -> bool {
        let (now, mut progressed) = (self.instant(self.now), false);
        for connection in &mut self.connections {
            if connection.closed_by_host {
                continue;
            }
            while !connection.at_host.is_empty() {
                let Some(buffer) = self.router.read_buffer(connection.id) else { break };
                let count = buffer.len().min(connection.at_host.len());
                buffer[..count].copy_from_slice(&connection.at_host[..count]);
                connection.at_host.drain(..count);
                self.router.handle_received(connection.id, count, now);
                progressed = true;
            }
            if connection.closed_by_server && connection.at_host.is_empty() {
                connection.closed_by_host = true;
                self.router.handle_disconnected(connection.id, &closed_by_server(), now);
                progressed = true;
            }
        }
        progressed
    }

    fn write(&mut self) {
        let now = self.instant(self.now);
        for index in 0..self.connections.len() {
            if self.connections[index].closed_by_host {
                continue;
            }
            let id = self.connections[index].id;
            let bytes = self.router.transmit(id, now);
            if bytes.is_empty() {
                continue;
            }
            // The system takes some of it, and the rest a little later.
            let all = self.random.chance(900);
            let count = if all { bytes.len() } else { self.random.between(1, bytes.len() as u64) as usize };
            let sent = bytes[..count].to_vec();
            let rest = count < bytes.len();
            self.router.handle_sent(id, count);
            let delay = self.delay();
            let at = Connection::arrival(&mut self.connections[index].to_server_until, self.now, delay);
            self.connections[index].to_server.push_back(sent);
            self.schedule(at, Event::ToServer(index));
            if rest {
                self.schedule(self.now + 50, Event::Wake);
            }
        }
    }

    fn act(&mut self) -> bool {
        let mut acted = false;
        while let Some(action) = self.router.poll_action() {
            acted = true;
            match action {
                Action::Connect { id, server, deadline } => self.connect(id, server, deadline),
                Action::Close(id) => {
                    for connection in self.connections.iter_mut().filter(|connection| connection.id == id) {
                        connection.closed_by_host = true;
                    }
                    self.attempts.iter_mut().filter(|attempt| attempt.id == id).for_each(|attempt| {
                        attempt.given_up = true;
                    });
                }
                Action::Discover(discovery) => {
                    assert!(self.discovery.is_none(), "one discovery at a time");
                    self.discoveries += 1;
                    self.discovery = Some(*discovery);
                    self.drive_discovery();
                }
            }
        }
        acted
    }

    fn connect(
        &mut self,
        id: crate::store::redis::protocol::ConnectionId,
        server: Arc<Server>,
        deadline: std::time::Instant,
    ) {
        let deadline = self.micros(deadline);
        let number = server_at(&server.address);
        let index = self.attempts.len();
        self.attempts.push(Attempt { id, server, deadline, given_up: false });
        let state = self.servers.state(number);
        let silent = state.unreachable_until > self.now || state.paused_until > self.now;
        let delay = 2 * self.delay();
        let event = if silent { Event::ConnectFails(index) } else { Event::Connected(index) };
        let at = if silent { deadline } else { deadline.min(self.now + delay) };
        self.schedule(at, event);
    }

    fn complete(&mut self) -> bool {
        let mut completed = Vec::new();
        self.router.take_completions(&mut completed);
        let progressed = !completed.is_empty();
        for completed in completed {
            match completed {
                Completed::One(caller, answer) => self.ledger.answer(caller, &answer, self.now),
                Completed::All(caller, answers) => self.ledger.answer_all(caller, &answers, self.now),
            }
        }
        progressed
    }

    pub(super) fn drive_discovery(&mut self) {
        let Some(mut discovery) = self.discovery.take() else { return };
        while let Some(probe) = discovery.poll_probe() {
            let number = server_at(&probe.server.address);
            let state = self.servers.state(number);
            let silent = state.unreachable_until > self.now || state.paused_until > self.now;
            let at = if silent { self.micros(probe.deadline) } else { self.now + 2 * self.delay() };
            let asked = self.asked.len();
            self.asked.push(Asked { discovery: self.discoveries, number: probe.number, server: probe.server });
            self.schedule(at, Event::ProbeReplies(self.discoveries, asked));
        }
        if let Some(result) = discovery.poll_result() {
            return self.router.handle_discovered(result, self.instant(self.now));
        }
        let at = self.micros(discovery.poll_timeout());
        self.discovery = Some(discovery);
        self.schedule(at, Event::DiscoveryTimeout(self.discoveries));
    }

    pub(super) fn probe_replies(&mut self, number: u64, asked: usize) {
        if number != self.discoveries || self.discovery.is_none() {
            return;
        }
        let asked = self.asked[asked].clone();
        assert_eq!(asked.discovery, number);
        let server = server_at(&asked.server.address);
        let state = self.servers.state(server);
        let fails = |kind: std::io::ErrorKind| asked.server.failure(&kind.into(), false);
        let reply = if state.down {
            Err(fails(std::io::ErrorKind::ConnectionRefused))
        } else if state.unreachable_until > self.now || state.paused_until > self.now {
            Err(fails(std::io::ErrorKind::TimedOut))
        } else {
            self.greet(&asked.server, server).map(|()| {
                let mut replies = self.servers.topology();
                if self.is_lying() {
                    replies.iter_mut().for_each(|reply| lie_much(reply, &mut self.random));
                }
                replies.into()
            })
        };
        let (probe, now) = (asked.number, self.instant(self.now));
        if let Some(discovery) = &mut self.discovery {
            discovery.handle_reply(probe, reply, now);
        }
        self.drive_discovery();
    }

    pub(super) fn connected(&mut self, index: usize) {
        let attempt = &self.attempts[index];
        if attempt.given_up {
            return;
        }
        let (id, server) = (attempt.id, server_at(&attempt.server.address));
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
        let failure = attempt.server.failure(&kind.into(), false);
        let id = attempt.id;
        self.router.handle_connect_failed(id, failure, self.instant(self.now));
    }

    /// The system gives up connections that nothing answers. With a single server they stay, and its calls find out.
    pub(super) fn close_half_open(&mut self) {
        for connection in self.connections.iter_mut().filter(|connection| connection.half_open) {
            (connection.half_open, connection.closed_by_server) = (false, true);
        }
    }

    /// One caller, or several at the same moment.
    pub(super) fn call(&mut self) {
        let several = if self.random.chance(200) { self.random.between(2, 12) } else { 1 };
        for _ in 0..several {
            match self.random.below(10) {
                0 | 1 => self.call_all(),
                2 | 3 => self.call_one(Operation::peek(1)),
                _ => self.check(),
            }
        }
    }

    pub(super) fn check(&mut self) {
        self.call_one(Operation::check(1));
    }

    fn deadline(&self) -> u64 {
        self.now + self.timeout.as_micros() as u64
    }

    fn call_one(&mut self, operation: Operation) {
        let deadline = self.deadline();
        let is_read = matches!(operation, Operation::Peek { .. });
        let request = self.calls.request(operation);
        let slot = self.calls.slot(&request);
        let caller = self.ledger.call(vec![request.redis_key.as_bytes().to_vec()], is_read, self.now, deadline);
        let call = PendingCall {
            requests: std::iter::once(request).collect(),
            grouping: Grouping::Independent,
            time: None,
            slot,
            state: CallState::new(self.instant(deadline), is_read && self.calls.reads_replicas),
            recipient: Recipient::One(caller),
        };
        self.router.submit(call, self.instant(self.now));
    }

    /// Requests that stand or fall together, of one slot or of several.
    fn call_all(&mut self) {
        let (deadline, count) = (self.deadline(), self.random.between(1, 4));
        let check = Operation::check(1);
        let requests: Vec<Request> = (0..count).map(|_| self.calls.request(check.clone())).collect();
        let slots: Vec<u16> = requests.iter().map(|request| self.calls.slot(request)).collect();
        let names = requests.iter().map(|request| request.redis_key.as_bytes().to_vec()).collect();
        let caller = self.ledger.call(names, false, self.now, deadline);
        let (now, until) = (self.instant(self.now), self.instant(deadline));
        if slots.iter().any(|slot| *slot != slots[0]) {
            return self.router.submit_transaction(requests, &slots, None, until, caller, now);
        }
        let call = PendingCall {
            requests: requests.into(),
            grouping: Grouping::AllOrNothing,
            time: None,
            slot: slots[0],
            state: CallState::by_itself(until),
            recipient: Recipient::All(caller),
        };
        self.router.submit(call, now);
    }
}
