//! Simulated servers: one, a cluster, or a primary with replicas and sentinels.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::commands::{Effect, ScriptCall};
use super::ledger::Ledger;
use crate::random::Random;
use crate::store::redis::protocol::{ServerDirectory, hash_slot};
use crate::store::url::{Address, Deployment, Endpoints, Login};

const SLOTS: usize = 16_384;
/// The number of servers of each kind, in a cluster and in a store with sentinels.
pub(super) const GROUP: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Single,
    /// Three primaries, then a replica of each.
    Cluster,
    /// A primary and two replicas, then three sentinels.
    Sentinel,
}

/// The directory of a store URL for these servers.
pub(super) fn directory(layout: Layout, read_replicas: bool, timeout: Duration) -> Arc<ServerDirectory> {
    let deployment = match layout {
        Layout::Single => Deployment::Single(address(0)),
        Layout::Cluster => Deployment::Cluster((0..GROUP).map(address).collect()),
        Layout::Sentinel => Deployment::Sentinel {
            sentinels: (GROUP..2 * GROUP).map(address).collect(),
            name: "main".to_owned(),
            login: Login::default(),
        },
    };
    let shown = "redis://simulated".to_owned();
    let endpoints =
        Endpoints { deployment, login: Login::default(), certificates: None, follow: None, read_replicas, shown };
    Arc::new(ServerDirectory::new(endpoints, timeout).with_script_pause(|_| Duration::from_micros(700)))
}

/// A server. Moments are microseconds of the schedule.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    pub(super) down: bool,
    /// Packets to it are dropped until then.
    pub(super) unreachable_until: u64,
    /// It runs nothing until then.
    pub(super) paused_until: u64,
    pub(super) loading_until: u64,
    knows_script: bool,
    knows_script_over_slots: bool,
    pub(super) is_replica: bool,
}

/// The servers of a simulation.
pub(super) struct Servers {
    pub(super) layout: Layout,
    /// True if they know no scripts over several slots.
    before_7: bool,
    pub(super) servers: Vec<Server>,
    /// The server that has each slot of a cluster.
    owners: Vec<u8>,
    /// The owners that the nodes of a cluster report, which may be old.
    published: Vec<u8>,
    /// Slots that are being moved: from, to, the first and the last.
    pub(super) migrating: Option<(usize, usize, usize, usize)>,
    /// With sentinels: the primary, the number of failovers, and the pair of both that the sentinels report.
    pub(super) primary: usize,
    epoch: u64,
    published_primary: (usize, u64),
}

/// The state that a client has set on its connection.
#[derive(Default)]
pub(super) struct Session {
    asking: bool,
    readonly: bool,
}

/// True if a key has left a slot that is being moved, as every second key has.
fn gone(name: &[u8]) -> bool {
    name.last().is_some_and(|byte| byte % 2 == 0)
}

pub(super) fn address(server: usize) -> Address {
    Address::Tcp(format!("10.0.0.{server}").into(), 7_000)
}

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// The number of the server at an address. A corrupted redirect names one that does not exist.
pub(super) fn server_at(address: &Address) -> usize {
    let Address::Tcp(host, port) = address else { unreachable!("no simulated server has a path") };
    let number = host.strip_prefix("10.0.0.").and_then(|last| last.parse().ok());
    number.filter(|_| *port == 7_000).unwrap_or(usize::MAX)
}

impl Servers {
    pub(super) fn new(layout: Layout, before_7: bool) -> Self {
        let count = if layout == Layout::Single { 1 } else { 2 * GROUP };
        let mut servers = vec![Server::default(); count];
        for (index, server) in servers.iter_mut().enumerate() {
            server.is_replica = match layout {
                Layout::Single => false,
                Layout::Cluster => index >= GROUP,
                Layout::Sentinel => (1..GROUP).contains(&index),
            };
        }
        let owners: Vec<u8> = (0..SLOTS).map(|slot| (slot * GROUP / SLOTS) as u8).collect();
        let (published, migrating) = (owners.clone(), None);
        let (primary, epoch, published_primary) = (0, 0, (0, 0));
        Self { layout, before_7, servers, owners, published, migrating, primary, epoch, published_primary }
    }

    /// The server of this number, or one that is down if there is none.
    pub(super) fn state(&self, server: usize) -> &Server {
        static GONE: Server = Server {
            down: true,
            unreachable_until: 0,
            paused_until: 0,
            loading_until: 0,
            knows_script: false,
            knows_script_over_slots: false,
            is_replica: false,
        };
        self.servers.get(server).unwrap_or(&GONE)
    }

    /// Makes the nodes and the sentinels report the current topology.
    pub(super) fn publish(&mut self) {
        self.published.clone_from(&self.owners);
        self.published_primary = (self.primary, self.epoch);
    }

    /// The slots from the first to the last go to another server.
    pub(super) fn move_slots(&mut self, first: usize, last: usize, to: usize) {
        self.owners[first..=last].fill(to as u8);
    }

    /// A replica takes the place of a primary.
    pub(super) fn fail_over(&mut self, primary: usize, random: &mut Random) {
        match self.layout {
            Layout::Single => {}
            Layout::Cluster => {
                // A primary and its replica are three apart.
                let replica = (primary + GROUP) % (2 * GROUP);
                self.owners
                    .iter_mut()
                    .filter(|owner| **owner == primary as u8)
                    .for_each(|owner| *owner = replica as u8);
                (self.servers[primary].is_replica, self.servers[replica].is_replica) = (true, false);
            }
            Layout::Sentinel => {
                let next = (self.primary + random.between(1, 2) as usize) % GROUP;
                (self.servers[self.primary].is_replica, self.servers[next].is_replica) = (true, false);
                (self.primary, self.epoch) = (next, self.epoch + 1);
            }
        }
    }

    /// Starts a server again, empty.
    pub(super) fn restart(&mut self, server: usize) {
        self.servers[server].down = false;
        self.forget_script(server);
    }

    /// All servers load their data. If there are several, that causes no error.
    pub(super) fn load_until(&mut self, until: u64) {
        self.servers.iter_mut().for_each(|server| server.loading_until = until);
    }

    pub(super) fn forget_script(&mut self, server: usize) {
        let server = &mut self.servers[server];
        (server.knows_script, server.knows_script_over_slots) = (false, false);
    }

    /// Ends every fault.
    pub(super) fn heal(&mut self) {
        for server in &mut self.servers {
            (server.down, server.unreachable_until, server.paused_until, server.loading_until) = (false, 0, 0, 0);
        }
        self.migrating = None;
        self.publish();
    }

    /// The reply to a command.
    pub(super) fn run(
        &mut self,
        server: usize,
        session: &mut Session,
        words: &[&[u8]],
        now: u64,
        ledger: &mut Ledger,
        random: &mut Random,
    ) -> Vec<u8> {
        let asking = std::mem::take(&mut session.asking);
        match words[0] {
            b"PING" => bulk(words[1]),
            b"ASKING" => {
                session.asking = true;
                b"+OK\r\n".to_vec()
            }
            b"EVAL" | b"EVALSHA" => self.run_script(server, session, words, asking, now, ledger, random),
            other => panic!("no simulated server knows {}", String::from_utf8_lossy(other)),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a server knows when a script call arrives")]
    fn run_script(
        &mut self,
        server: usize,
        session: &Session,
        words: &[&[u8]],
        asking: bool,
        now: u64,
        ledger: &mut Ledger,
        random: &mut Random,
    ) -> Vec<u8> {
        let call = ScriptCall::new(words);
        if self.servers[server].loading_until > now {
            return b"-LOADING Redis is loading the dataset in memory\r\n".to_vec();
        }
        if let Some(redirect) = self.redirect(server, session, &call, asking) {
            return redirect;
        }
        let state = &mut self.servers[server];
        let knows = if call.over_slots { &mut state.knows_script_over_slots } else { &mut state.knows_script };
        if !call.in_full && !*knows {
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n".to_vec();
        }
        if call.over_slots && self.before_7 {
            return b"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n"
                .to_vec();
        }
        *knows = true;
        let run = ledger.begin_run();
        let is_replica = self.servers[server].is_replica;
        let mut refused: Vec<bool> = call.requests.iter().map(|_| random.chance(100)).collect();
        for (refused, (_, effect)) in refused.iter_mut().zip(&call.requests) {
            *refused &= *effect == Effect::Charge;
        }
        let falls = call.all_or_nothing && refused.contains(&true);
        let numbers: Vec<usize> =
            refused.iter().enumerate().filter(|(_, refused)| **refused).map(|(index, _)| index + 1).collect();
        let mut reply = format!("*{}\r\n", 1 + call.requests.len()).into_bytes();
        for ((name, effect), refused) in call.requests.iter().zip(refused) {
            if call.over_slots && !self.is_local(server, &call.names[*name]) {
                reply.extend_from_slice(b"-ERR Script attempted to access a non local key in a cluster node\r\n");
                continue;
            }
            if is_replica && *effect != Effect::Read && !call.dry_run {
                reply.extend_from_slice(b"-READONLY You can't write against a read only replica.\r\n");
                continue;
            }
            ledger.run(run, &call.names[*name], *effect, call.dry_run, !refused && !falls);
            reply.extend_from_slice(b"$0\r\n\r\n");
        }
        let mut seal = (run as f64).to_le_bytes().to_vec();
        numbers.iter().for_each(|number| seal.extend_from_slice(&(*number as u32).to_le_bytes()));
        seal.extend_from_slice(&call.number);
        reply.extend_from_slice(&bulk(&seal));
        reply
    }

    /// The redirect to the server of the keys of a call, if they are not here.
    fn redirect(&self, server: usize, session: &Session, call: &ScriptCall, asking: bool) -> Option<Vec<u8>> {
        if self.layout != Layout::Cluster {
            return None;
        }
        let slot = usize::from(hash_slot(&call.names[0]));
        let one_slot = call.names.iter().all(|name| usize::from(hash_slot(name)) == slot);
        assert_ne!(one_slot, call.over_slots, "one slot for a call, or a call over several");
        let declared = if call.over_slots { &call.names[..1] } else { &call.names };
        let owner = usize::from(self.owners[slot]);
        let to = |kind: &str, server: usize| format!("-{kind} {slot} {}\r\n", address(server)).into_bytes();
        if let Some((from, target, first, last)) = self.migrating
            && (first..=last).contains(&slot)
        {
            let missing = declared.iter().filter(|name| gone(name)).count();
            let several = declared.len() > 1;
            if server == from && owner == from {
                return match missing {
                    0 => None,
                    _ if several && missing < declared.len() => Some(b"-TRYAGAIN Multiple keys\r\n".to_vec()),
                    _ => Some(to("ASK", target)),
                };
            }
            if server == target && asking {
                return (several && missing < declared.len()).then(|| b"-TRYAGAIN Multiple keys\r\n".to_vec());
            }
        }
        let reads = session.readonly && call.requests.iter().all(|(_, effect)| *effect == Effect::Read);
        let replicates = server % GROUP == owner % GROUP;
        if server == owner || reads && replicates { None } else { Some(to("MOVED", owner)) }
    }

    /// True if a script finds an undeclared key on a node of a cluster.
    fn is_local(&self, server: usize, name: &[u8]) -> bool {
        let slot = usize::from(hash_slot(name));
        let moving =
            self.migrating.is_some_and(|(from, _, first, last)| from == server && (first..=last).contains(&slot));
        usize::from(self.owners[slot]) == server && !(moving && gone(name))
    }

    /// The reply of a server to HELLO.
    pub(super) fn hello(&self, server: usize) -> Value {
        let word = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let sentinel = self.layout == Layout::Sentinel && server >= GROUP;
        let mode = match self.layout {
            _ if sentinel => "sentinel",
            Layout::Cluster => "cluster",
            _ => "standalone",
        };
        let role = if self.servers[server].is_replica { "replica" } else { "master" };
        Value::Array(vec![word("mode"), word(mode), word("role"), word(role)])
    }

    /// The replies to a probe about the topology.
    pub(super) fn topology(&self) -> Vec<Value> {
        let word = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let host = |server: usize| format!("10.0.0.{server}");
        if self.layout == Layout::Cluster {
            let node = |server: usize| Value::Array(vec![word(&host(server)), Value::Int(7_000)]);
            let mut ranges = Vec::new();
            let mut first = 0;
            for last in 0..SLOTS {
                let owner = usize::from(self.published[last]);
                if last + 1 < SLOTS && usize::from(self.published[last + 1]) == owner {
                    continue;
                }
                let replica = (owner + GROUP) % (2 * GROUP);
                ranges.push(Value::Array(vec![
                    Value::Int(first as i64),
                    Value::Int(last as i64),
                    node(owner),
                    node(replica),
                ]));
                first = last + 1;
            }
            return vec![Value::Array(ranges)];
        }
        let (primary, epoch) = self.published_primary;
        let listed = |server: usize| {
            let (host, epoch) = (host(server), epoch.to_string());
            let words = ["ip", &host, "port", "7000", "flags", "", "config-epoch", &epoch];
            Value::Array(words.map(word).to_vec())
        };
        let replicas = (0..GROUP).filter(|server| *server != primary).map(listed).collect();
        // MASTER shows the former address beside a new epoch: a discovery takes the epoch alone from it.
        let former = listed((primary + 1) % GROUP);
        let by_name = Value::Array(vec![word(&host(primary)), word("7000")]);
        vec![former.clone(), by_name, Value::Array(replicas), Value::Array(vec![former])]
    }

    pub(super) fn mark_readonly(session: &mut Session) {
        session.readonly = true;
    }
}
