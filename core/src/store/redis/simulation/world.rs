//! A schedule: the router, its driver, the network and the servers, with a clock that only moves from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::commands::take_command;
use super::ledger::{Ledger, SimulatedCallers};
use super::lies::lying_reply;
use super::network::Connection;
use super::servers::{GROUP, Layout, Servers, address, directory};
use crate::random::Random;
use crate::store::redis::protocol::{ConnectionId, Discovery, Router, Server as ServerAddress};

/// Something that happens at a moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The host looks: something is due, or it was busy until now.
    Wake,
    Call,
    /// A check of one key.
    Check,
    Fault,
    /// The servers report the current topology.
    Publish,
    /// A server runs the commands that have arrived.
    ServerRuns(usize),
    /// The next bytes of a connection arrive.
    ToServer(usize),
    ToHost(usize),
    ServerCloses(usize),
    Connected(usize),
    ConnectFails(usize),
    ProbeReplies(u64, usize),
    DiscoveryTimeout(u64),
}

/// An attempt to connect that is under way.
pub(super) struct Attempt {
    pub(super) id: ConnectionId,
    pub(super) server: Arc<ServerAddress>,
    pub(super) deadline: u64,
    pub(super) given_up: bool,
}

/// A question about the topology that is under way.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) discovery: u64,
    pub(super) number: usize,
    pub(super) server: ServerAddress,
}

/// One run of a simulation.
pub(super) struct World {
    pub(super) router: Router<SimulatedCallers>,
    pub(super) timeout: Duration,
    pub(super) servers: Servers,
    pub(super) connections: Vec<Connection>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) discovery: Option<Discovery>,
    pub(super) discoveries: u64,
    pub(super) asked: Vec<Asked>,
    pub(super) ledger: Ledger,
    pub(super) calls: Calls,
    pub(super) random: Random,
    /// The clock, in microseconds since the schedule began.
    pub(super) now: u64,
    began: Instant,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    /// The host does nothing until then.
    pub(super) busy_until: u64,
    /// Replies are corrupted until then.
    pub(super) faulty_proxy_until: u64,
    /// Servers lie until then.
    pub(super) lying_until: u64,
    /// The bounds of the delay of a packet.
    min_delay: u64,
    pub(super) max_delay: u64,
    pub(super) wakes_at: Option<u64>,
    /// True if events are printed, which only a schedule that runs alone does.
    traced: bool,
}

impl World {
    pub(super) fn new(seed: u64, began: Instant) -> Self {
        let mut random = Random::new(seed);
        let layout = [Layout::Single, Layout::Cluster, Layout::Sentinel][random.below(3) as usize];
        let timeout = Duration::from_millis([50, 250, 250, 1_000][random.below(4) as usize]);
        let reads_replicas = layout != Layout::Single && random.chance(300);
        let directory = directory(layout, reads_replicas, timeout);
        let max_batch = if random.chance(100) { 1 } else { 256 };
        let max_delay = [200, 2_000, 20_000][random.below(3) as usize];
        let before_7 = random.chance(200);
        Self {
            router: Router::new(directory, "tg".into(), max_batch),
            timeout,
            servers: Servers::new(layout, before_7),
            connections: Vec::new(),
            attempts: Vec::new(),
            discovery: None,
            discoveries: 0,
            asked: Vec::new(),
            ledger: Ledger::default(),
            calls: Calls::new(reads_replicas, layout),
            random,
            now: 0,
            began,
            events: BinaryHeap::new(),
            sequence: 0,
            busy_until: 0,
            faulty_proxy_until: 0,
            lying_until: 0,
            min_delay: 20,
            max_delay,
            wakes_at: None,
            traced: std::env::var_os("TIDEGATE_SCHEDULE").is_some(),
        }
    }

    pub(super) fn instant(&self, at: u64) -> Instant {
        self.began + Duration::from_micros(at)
    }

    pub(super) fn micros(&self, instant: Instant) -> u64 {
        // Upward: an event is never too early.
        instant.saturating_duration_since(self.began).as_nanos().div_ceil(1_000) as u64
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at.max(self.now), self.sequence, event)));
    }

    pub(super) const fn delay(&mut self) -> u64 {
        self.random.between(self.min_delay, self.max_delay)
    }

    /// Runs calls and faults. Then ends every fault, and checks that calls are served.
    pub(super) fn run(&mut self) {
        let (calls, faults) = (self.random.between(3, 24), self.random.below(8));
        let length = self.random.between(1_000, 1_000_000);
        for _ in 0..calls {
            let at = self.random.below(length);
            self.schedule(at, Event::Call);
        }
        for _ in 0..faults {
            let at = self.random.below(length);
            self.schedule(at, Event::Fault);
        }
        self.run_events();
        assert_eq!(self.ledger.waiting, 0, "calls that are never told");
        self.servers.heal();
        if self.servers.layout != Layout::Single {
            self.close_half_open();
        }
        (self.busy_until, self.faulty_proxy_until, self.lying_until, self.max_delay) = (0, 0, 0, 500);
        // The other faults end within this time, except connections that died silently. Calls find out about those.
        for _ in 0..6 {
            self.schedule(self.now + 2_500_000, Event::Call);
        }
        self.run_events();
        let healthy_from = self.ledger.count();
        let timeout = std::mem::replace(&mut self.timeout, Duration::from_secs(2));
        if self.servers.layout != Layout::Single && self.random.chance(300) {
            // A single call, so that no other event moves it on after its pauses.
            self.servers.load_until(self.now + 30_000);
            self.schedule(self.now, Event::Check);
            self.run_events();
        }
        for _ in 0..6 {
            let at = self.now + self.random.below(20_000);
            self.schedule(at, Event::Call);
        }
        self.run_events();
        if self.servers.layout == Layout::Single {
            self.check_latency(20, 500, 11_000);
            // Over a slow link batches follow each other.
            if timeout >= Duration::from_millis(250) {
                self.timeout = timeout;
                self.check_latency(40_000, 40_000, 95_000);
            }
        }
        self.ledger.check_end(healthy_from);
        self.router.check_bounds();
    }

    /// Makes calls over an open connection, at the same moment and one after the other, with packets that take this
    /// long. They must be told within `most`, which leaves no time for the timer of a late call.
    fn check_latency(&mut self, min_delay: u64, max_delay: u64, most: u64) {
        (self.min_delay, self.max_delay) = (min_delay, max_delay);
        let (from, began) = (self.ledger.count(), self.now + 1);
        for number in 0..8 {
            self.schedule(began + number / 2 * 300, Event::Check);
        }
        self.run_events();
        self.ledger.check_latency(from, most);
    }

    fn run_events(&mut self) {
        for number in 0.. {
            assert!(number < 100_000, "the schedule never ends");
            let Some(Reverse((at, _, event))) = self.events.pop() else { return };
            self.now = self.now.max(at);
            if self.traced {
                eprintln!("{:>10} {}", self.now, self.shown(&event));
            }
            self.handle(event);
            self.drive();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake if self.wakes_at.is_some_and(|wakes| wakes <= self.now) => self.wakes_at = None,
            Event::Wake => {}
            Event::Call => self.call(),
            Event::Check => self.check(),
            Event::Fault => self.fault(),
            Event::Publish => self.servers.publish(),
            Event::ToServer(connection) => self.arrive_at_server(connection),
            Event::ServerRuns(connection) => self.server_runs(connection),
            Event::ToHost(connection) => self.arrive_at_host(connection),
            Event::ServerCloses(connection) => self.connections[connection].closed_by_server = true,
            Event::Connected(attempt) => self.connected(attempt),
            Event::ConnectFails(attempt) => self.connect_fails(attempt),
            Event::ProbeReplies(discovery, number) => self.probe_replies(discovery, number),
            Event::DiscoveryTimeout(discovery) => {
                let now = self.instant(self.now);
                if discovery == self.discoveries
                    && let Some(discovery) = &mut self.discovery
                {
                    discovery.handle_timeout(now);
                }
                self.drive_discovery();
            }
        }
    }

    /// True if a server that is asked now lies.
    pub(super) fn is_lying(&mut self) -> bool {
        self.lying_until > self.now && self.random.chance(500)
    }

    /// Packets to a server that is unreachable are sent again once it is reachable.
    fn is_delayed(&mut self, index: usize, event: Event) -> bool {
        let reachable = self.servers.servers[self.connections[index].server].unreachable_until;
        if reachable > self.now {
            self.schedule(reachable, event);
        }
        reachable > self.now
    }

    fn arrive_at_server(&mut self, index: usize) {
        if self.is_delayed(index, Event::ToServer(index)) {
            return;
        }
        let connection = &mut self.connections[index];
        let Some(bytes) = connection.to_server.pop_front() else { return };
        if !connection.half_open && !connection.closed_by_server && !self.servers.servers[connection.server].down {
            // Most pieces are whole commands: nothing is copied then.
            if connection.at_server.is_empty() {
                connection.at_server = bytes;
            } else {
                connection.at_server.extend_from_slice(&bytes);
            }
            self.server_runs(index);
        }
    }

    fn arrive_at_host(&mut self, index: usize) {
        if self.is_delayed(index, Event::ToHost(index)) {
            return;
        }
        let connection = &mut self.connections[index];
        let Some(bytes) = connection.to_host.pop_front() else { return };
        if !connection.half_open {
            connection.at_host.extend_from_slice(&bytes);
        }
    }

    /// An event as it is printed.
    fn shown(&self, event: &Event) -> String {
        let bytes = match event {
            Event::ToServer(connection) => self.connections[*connection].to_server.front(),
            Event::ToHost(connection) => self.connections[*connection].to_host.front(),
            _ => None,
        };
        let text: String =
            bytes.map_or_else(String::new, |bytes| bytes.escape_ascii().map(char::from).take(400).collect());
        format!("{event:?} {text}")
    }

    fn server_runs(&mut self, index: usize) {
        let connection = &self.connections[index];
        let server = connection.server;
        if connection.closed_by_server || self.servers.servers[server].down {
            return;
        }
        let paused_until = self.servers.servers[server].paused_until;
        if paused_until > self.now {
            return self.schedule(paused_until, Event::ServerRuns(index));
        }
        while let Some(command) = take_command(&mut self.connections[index].at_server) {
            let session = &mut self.connections[index].session;
            let now = self.now;
            let reply = self.servers.run(server, session, &command.words(), now, &mut self.ledger, &mut self.random);
            let reply = if self.is_lying() {
                lying_reply(reply, &address(server).to_string(), &mut self.random)
            } else {
                reply
            };
            self.reply(index, reply);
        }
    }

    /// Sends a reply, in one piece or in several.
    fn reply(&mut self, index: usize, reply: Vec<u8>) {
        let is_faulty = self.faulty_proxy_until > self.now;
        let mut reply = self.connections[index].proxy.pass(reply, is_faulty, &mut self.random);
        self.ledger.tolerates_repeats |= self.connections[index].proxy.is_beyond_notice();
        if reply.is_empty() {
            return;
        }
        let mut pieces = Vec::new();
        while self.random.chance(150) && reply.len() > 1 {
            let at = self.random.between(1, reply.len() as u64 - 1) as usize;
            let rest = reply.split_off(at);
            pieces.push(std::mem::replace(&mut reply, rest));
        }
        pieces.push(reply);
        for piece in pieces {
            let delay = self.delay();
            let at = Connection::arrival(&mut self.connections[index].to_host_until, self.now, delay);
            self.connections[index].to_host.push_back(piece);
            self.schedule(at, Event::ToHost(index));
        }
    }

    /// A random server among the first `GROUP`, or the only one.
    pub(super) fn some_server(&mut self) -> usize {
        let count = if self.servers.layout == Layout::Single { 1 } else { GROUP };
        self.random.below(count as u64) as usize
    }
}
