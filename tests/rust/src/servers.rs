//! Real servers for Rust tests: a thin client of the harness in `tests/servers`.
//!
//! When the harness reports an error, the calls here panic with its message.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::wait::wait_until;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../servers/servers.py");

/// An arrangement of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One server.
    Single,
    /// A primary and its replicas.
    Replica,
    /// A primary, two replicas and three sentinels.
    Sentinel,
    /// Three primaries that share the slots, and a replica of each.
    Cluster,
    /// One PostgreSQL server.
    Postgres,
    /// A PostgreSQL server, and a standby that follows it.
    Standby,
    /// PostgreSQL behind PgBouncer, which is server 1.
    PgBouncer,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Replica => "replica",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Postgres => "postgres",
            Self::Standby => "standby",
            Self::PgBouncer => "pgbouncer",
        }
    }
}

/// True if the servers of this run are Redis 6.2. Its cluster nodes do not announce a new port to each other, and it
/// lacks some settings. `make test-all` prints what it leaves out.
#[must_use]
pub fn is_redis_6() -> bool {
    let program = std::env::var("TIDEGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(" v=6."))
}

/// Running servers. They live until this value is dropped or this process ends, in whatever way, so a `static` may hold them
/// for all tests of a binary.
pub struct Servers {
    child: Child,
    description: Value,
    // One command and its answer at a time: answers have no identifiers, only their order.
    harness: Mutex<HarnessPipes>,
}

impl Servers {
    /// Starts servers with the usual options.
    #[must_use]
    #[track_caller]
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, json!({}))
    }

    /// Starts servers with options: `json!({"tls": true, "password": "…"})`. All are listed in
    /// `tests/servers/harness/options.py`.
    #[must_use]
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "callers write json!({…}) in place")]
    pub fn start_with(kind: Kind, options: Value) -> Self {
        let mut child = Command::new("python3")
            .arg(PROGRAM)
            .arg(json!({"kind": kind.name(), "options": options}).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs the server harness");
        let mut pipes = HarnessPipes {
            commands: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("stdout is piped")),
        };
        let description = pipes.receive();
        Self { child, description, harness: Mutex::new(pipes) }
    }

    /// The URL of the whole arrangement.
    #[must_use]
    pub fn url(&self) -> &str {
        self.text("/url")
    }

    /// The URL of one endpoint: `tcp`, `tls`, `unix`, `primary`, …
    #[must_use]
    #[track_caller]
    pub fn url_of(&self, endpoint: &str) -> &str {
        self.text(&format!("/urls/{endpoint}"))
    }

    /// The plain TCP port of one server.
    #[must_use]
    #[track_caller]
    pub fn port(&self, server: usize) -> u16 {
        self.description
            .pointer(&format!("/servers/{server}/port"))
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or_else(|| panic!("there is no server {server}"))
    }

    /// The description that the harness gave when the servers were ready.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.description
    }

    /// Kills a server.
    #[track_caller]
    pub fn kill(&self, server: usize) {
        self.run(&json!({"do": "kill", "server": server}));
    }

    /// Stops a server (SIGSTOP): its connections stay open and silent.
    #[track_caller]
    pub fn stop(&self, server: usize) {
        self.run(&json!({"do": "stop", "server": server}));
    }

    /// Continues a stopped server.
    #[track_caller]
    pub fn cont(&self, server: usize) {
        self.run(&json!({"do": "cont", "server": server}));
    }

    /// Starts a killed server again: same port, no data.
    #[track_caller]
    pub fn start_again(&self, server: usize) {
        self.run(&json!({"do": "start", "server": server}));
    }

    /// Kills a server and starts it again: same port, no data.
    #[track_caller]
    pub fn restart(&self, server: usize) {
        self.run(&json!({"do": "restart", "server": server}));
    }

    /// Sets a server's wall clock ahead or back. It needs the option `clock`.
    #[track_caller]
    pub fn clock(&self, server: usize, seconds: f64) {
        self.run(&json!({"do": "clock", "server": server, "seconds": seconds}));
    }

    /// Runs a Redis command as the harness's own user, which exists beside all users of the test.
    #[track_caller]
    pub fn command(&self, server: usize, words: &[&str]) -> Value {
        self.run(&json!({"do": "command", "server": server, "args": words}))["reply"].take()
    }

    /// Orders a failover until it is over: at once, and again every six seconds while `is_idle`. A cluster node gives one up after
    /// five seconds, and a sentinel when it has heard of no replica for a moment, as on a busy machine.
    ///
    /// # Panics
    /// When the server does not answer, or the failover is not over in time.
    #[track_caller]
    pub fn fail_over(
        &self,
        server: usize,
        words: &[&str],
        patience: Duration,
        is_idle: impl Fn() -> bool,
        is_over: impl Fn() -> bool,
    ) {
        let mut ordered: Option<Instant> = None;
        wait_until(patience, "a replica is promoted", || {
            let over = is_over();
            if !over && ordered.is_none_or(|last| last.elapsed() > Duration::from_secs(6)) {
                ordered = Some(Instant::now());
                if is_idle() {
                    // An error means that a failover is under way already, or cannot begin yet.
                    let _: redis::RedisResult<()> =
                        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connection(server));
                }
            }
            over
        });
    }

    /// How often a server ran a command.
    ///
    /// # Panics
    /// When its statistics have another form.
    #[must_use]
    #[track_caller]
    pub fn calls(&self, server: usize, command: &str) -> u64 {
        let stats = self.command(server, &["INFO", "commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=");
        let mut lines = stats.as_str().expect("text").lines();
        let line = lines.find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
        line.map_or(0, |number| number.parse().expect("a number"))
    }

    /// A connection of the harness's own user to one server, for replies that are not text, such as keys.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    #[track_caller]
    pub fn connection(&self, server: usize) -> redis::Connection {
        let (user, password) = self.control();
        let client = redis::Client::open(format!("redis://{user}:{password}@127.0.0.1:{}", self.port(server)));
        client.and_then(|client| client.get_connection()).expect("the server answers")
    }

    /// The harness's own user and its password.
    #[must_use]
    pub fn control(&self) -> (&str, &str) {
        (self.text("/control/user"), self.text("/control/password"))
    }

    #[track_caller]
    fn run(&self, command: &Value) -> Value {
        // If the harness refuses a command, the panic happens while the lock is held. The pipes stay in step even then.
        let mut pipes = self.harness.lock().unwrap_or_else(PoisonError::into_inner);
        pipes.send(command);
        pipes.receive()
    }

    #[track_caller]
    fn text(&self, pointer: &str) -> &str {
        self.description
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("these servers have no {pointer}"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let pipes = self.harness.get_mut().unwrap_or_else(PoisonError::into_inner);
        pipes.commands = None;
        // Waits until the last file is removed, so that the next test finds a clean machine.
        let _ = self.child.wait();
    }
}

struct HarnessPipes {
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl HarnessPipes {
    #[track_caller]
    fn send(&mut self, command: &Value) {
        let commands = self.commands.as_mut().expect("open until dropped");
        writeln!(commands, "{command}").expect("the server harness takes commands");
    }

    #[track_caller]
    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server harness answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("the server harness ended unexpectedly; its message is on stderr. It wrote: {line:?}")
        });
        if answer["ok"] != true {
            let reason = answer["error"].as_str().unwrap_or("no reason given");
            panic!("the server harness: {reason}");
        }
        answer
    }
}
