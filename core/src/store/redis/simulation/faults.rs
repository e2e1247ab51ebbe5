//! The faults of a schedule.

use super::servers::{GROUP, Layout};
use super::world::{Event, World};

impl World {
    pub(super) fn fault(&mut self) {
        let server = self.some_server();
        let until = self.now + self.random.between(1_000, 800_000);
        match self.random.below(14) {
            0 => self.cut(None),
            1 => self.half_open(),
            2 => self.servers.servers[server].paused_until = until,
            3 => self.servers.servers[server].unreachable_until = until,
            4 => {
                self.kill(server);
                self.schedule(until, Event::Fault);
            }
            5 => self.servers.servers[server].loading_until = until,
            6 => self.servers.forget_script(server),
            7 => self.busy_until = self.now + self.random.between(1_000, 200_000),
            8 => self.restart_all(),
            9 => self.fail_over(server),
            10 => self.move_slots(),
            11 => self.faulty_proxy_until = until,
            12 => (self.lying_until, self.ledger.believes_lies) = (until, true),
            _ => self.migrate_slots(),
        }
    }

    /// Connections end, each after some of the bytes that are on their way.
    fn cut(&mut self, server: Option<usize>) {
        for index in 0..self.connections.len() {
            if server.is_none_or(|server| self.connections[index].server == server) {
                let at = self.now + self.random.below(self.max_delay);
                self.schedule(at, Event::ServerCloses(index));
            }
        }
    }

    fn half_open(&mut self) {
        for connection in &mut self.connections {
            connection.half_open |= !connection.closed_by_server && self.random.chance(500);
        }
    }

    fn kill(&mut self, server: usize) {
        self.servers.servers[server].down = true;
        for connection in self.connections.iter_mut().filter(|connection| connection.server == server) {
            connection.closed_by_server = true;
        }
    }

    fn restart_all(&mut self) {
        for server in 0..self.servers.servers.len() {
            if self.servers.servers[server].down || self.random.chance(300) {
                self.kill(server);
                self.servers.restart(server);
            }
        }
    }

    /// A replica serves now, and the old primary may be gone. Other servers hear of it a little later.
    fn fail_over(&mut self, server: usize) {
        let primary = if self.servers.layout == Layout::Sentinel { self.servers.primary } else { server };
        if self.random.chance(500) && self.servers.layout != Layout::Single {
            self.kill(primary);
        }
        if !self.servers.servers[primary].is_replica {
            self.servers.fail_over(primary, &mut self.random);
        }
        let at = self.now + self.random.below(300_000);
        self.schedule(at, Event::Publish);
    }

    fn slots(&mut self) -> (usize, usize) {
        let first = self.random.below(16_000) as usize;
        (first, first + self.random.below(384) as usize * 42)
    }

    fn move_slots(&mut self) {
        if self.servers.layout != Layout::Cluster {
            return self.cut(None);
        }
        let (first, last) = self.slots();
        let to = self.some_primary();
        self.servers.move_slots(first, last.min(16_383), to);
        let at = self.now + self.random.below(300_000);
        self.schedule(at, Event::Publish);
    }

    /// Half of the keys of some slots have gone to another server already.
    fn migrate_slots(&mut self) {
        if self.servers.layout != Layout::Cluster {
            return self.half_open();
        }
        let (first, last) = self.slots();
        let (from, to) = (self.some_primary(), self.some_primary());
        self.servers.migrating = (from != to).then_some((from, to, first, last.min(16_383)));
    }

    fn some_primary(&mut self) -> usize {
        let server = self.some_server();
        if self.servers.servers[server].is_replica { (server + GROUP) % (2 * GROUP) } else { server }
    }
}
