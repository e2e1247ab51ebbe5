//! The first commands on a connection: they log in, and find out what the server is.

use std::borrow::Cow;

use redis::Value;

use super::failure::{self, Failure};
use crate::error::{Error, ErrorKind, visible};
use crate::store::url::Login;

/// The role that a server must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedRole {
    /// The only server of its store.
    Single,
    /// The server that the sentinels call the primary.
    Primary,
    /// A server that the sentinels call a replica.
    Replica,
    ClusterNode,
    /// A node of a cluster that answers reads although it is a replica.
    ClusterReplica,
    Sentinel,
}

/// The role that a server reports. An old server or a proxy reports none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ReportedRole {
    mode: String,
    role: String,
}

/// The commands that open a connection, in order.
pub(crate) struct Handshake {
    pub(crate) commands: Vec<u8>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Login,
    Hello,
    /// Asks which keys the server evicts. A user without the right to ask can still log in.
    Memory,
    /// Names the connection in the server's list. A user without the right to do so can still log in.
    Name,
    Other,
}

impl Handshake {
    pub(crate) fn new(login: &Login, expected: ExpectedRole) -> Self {
        let mut handshake = Self { commands: Vec::new(), steps: Vec::new() };
        if let Some(password) = &login.password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &login.user {
                auth.arg(user);
            }
            handshake.add(Step::Login, auth.arg(password));
        }
        let mut hello = redis::cmd("HELLO");
        if login.resp3 {
            hello.arg(3);
        }
        handshake.add(Step::Hello, &hello);
        if let Some(name) = &login.client_name {
            handshake.add(Step::Name, redis::cmd("CLIENT").arg("SETNAME").arg(name));
        }
        if login.database > 0 {
            handshake.add(Step::Other, redis::cmd("SELECT").arg(login.database));
        }
        if expected == ExpectedRole::ClusterReplica {
            handshake.add(Step::Other, &redis::cmd("READONLY"));
        }
        handshake
    }

    /// Adds the question which keys the server evicts when its memory is full.
    pub(crate) fn with_memory(mut self) -> Self {
        self.add(Step::Memory, redis::cmd("INFO").arg("memory"));
        self
    }

    /// The server's `maxmemory-policy`, if it lets the server evict keys of limits.
    pub(crate) fn eviction<'a>(&self, replies: &'a [Value]) -> Option<Cow<'a, str>> {
        let asked = self.steps.iter().position(|step| *step == Step::Memory)?;
        let lines = text(replies.get(asked)?)?.lines();
        let policy = lines.filter_map(|line| line.strip_prefix("maxmemory_policy:")).next()?;
        (policy != "noeviction").then(|| visible(policy))
    }

    fn add(&mut self, step: Step, cmd: &redis::Cmd) {
        cmd.write_packed_command(&mut self.commands);
        self.steps.push(step);
    }

    pub(crate) fn reply_count(&self) -> usize {
        self.steps.len()
    }

    /// Checks that the login succeeded and that the server has the expected role.
    pub(crate) fn check(
        &self,
        replies: &[Value],
        login: &Login,
        expected: ExpectedRole,
        shown: &str,
    ) -> Result<(), Failure> {
        let mut reported = ReportedRole::default();
        for (step, reply) in self.steps.iter().zip(replies) {
            match (step, reply) {
                (Step::Login, Value::ServerError(error)) if !is_full(error) => {
                    let advice = login.password_file.as_ref().map_or_else(
                        || format!("give the right ones {}", place_of_login(expected)),
                        |file| format!("the file that {} names must hold the right one", file.option),
                    );
                    return Err(Failure::of_call(Error::new(
                        ErrorKind::StoreRejected,
                        format!("{shown} refused the user or the password: {advice}"),
                    )));
                }
                (_, Value::ServerError(error)) if error.code() == "NOAUTH" => {
                    return Err(Failure::of_server(Error::new(
                        ErrorKind::StoreRejected,
                        format!("{shown} asks for a password (NOAUTH): give it {}", place_of_login(expected)),
                    )));
                }
                // An old server or a proxy may not know HELLO. Only the third protocol needs it.
                (Step::Hello, Value::ServerError(error)) if is_unknown(error) && login.resp3 => {
                    return Err(Failure::of_call(Error::config(format!(
                        "{shown} does not speak RESP3: leave protocol=3 out of the store URL"
                    ))));
                }
                (Step::Hello, Value::ServerError(error)) if is_unknown(error) => {}
                (Step::Memory | Step::Name, Value::ServerError(error)) if !is_full(error) => {}
                (_, Value::ServerError(error)) => {
                    return Err(Failure::of_server(failure::refused(shown, error)));
                }
                (Step::Hello, reply) => reported = ReportedRole::read(reply),
                _ => {}
            }
        }
        reported.check(expected, shown)
    }
}

/// The place where the user sets the login for such a server.
fn place_of_login(expected: ExpectedRole) -> &'static str {
    match expected {
        ExpectedRole::Sentinel => "as sentinel_username and sentinel_password of the store URL",
        _ => "in the store URL",
    }
}

/// True if the server does not know a command.
fn is_unknown(error: &redis::ServerError) -> bool {
    error.code() == "ERR" && !is_full(error)
}

fn is_full(error: &redis::ServerError) -> bool {
    error.details().is_some_and(|detail| detail.starts_with("max number of clients"))
}

impl ReportedRole {
    fn read(reply: &Value) -> Self {
        let mut reported = Self::default();
        let mut take = |name: &Value, value: &Value| match (text(name), text(value)) {
            (Some("mode"), Some(mode)) => mode.clone_into(&mut reported.mode),
            (Some("role"), Some(role)) => role.clone_into(&mut reported.role),
            _ => {}
        };
        match reply {
            Value::Array(items) => items.chunks_exact(2).for_each(|pair| take(&pair[0], &pair[1])),
            Value::Map(pairs) => pairs.iter().for_each(|(name, value)| take(name, value)),
            _ => {}
        }
        reported
    }

    fn check(&self, expected: ExpectedRole, shown: &str) -> Result<(), Failure> {
        if self.mode.is_empty() {
            return Ok(());
        }
        let found = match self.mode.as_str() {
            "cluster" => "a node of a Redis Cluster",
            "sentinel" => "a sentinel",
            _ if self.role == "master" => "a server that is a primary",
            _ => "a server that is a replica",
        };
        let wrong = |wanted: &str| format!("{shown} answers as {found}, but {wanted} was expected");
        let advice = match self.mode.as_str() {
            "cluster" => ": use a store URL of redis+cluster://",
            "sentinel" => ": use a store URL of redis+sentinel://",
            _ => ": use a store URL of redis://",
        };
        let config = |wanted: &str| Err(Failure::of_call(Error::config(wrong(wanted) + advice)));
        let moved = |wanted: &str| Err(Failure::of_server(Error::new(ErrorKind::StoreUnavailable, wrong(wanted))));
        match (expected, self.mode.as_str()) {
            (ExpectedRole::Single, "cluster" | "sentinel") => config("a single server"),
            (ExpectedRole::Sentinel, mode) if mode != "sentinel" => config("a sentinel"),
            (ExpectedRole::ClusterNode | ExpectedRole::ClusterReplica, mode) if mode != "cluster" => {
                config("a node of a cluster")
            }
            (ExpectedRole::Primary | ExpectedRole::Replica, "cluster" | "sentinel") => {
                moved("a server that sentinels watch")
            }
            (ExpectedRole::Primary, _) if self.role != "master" => moved("the primary"),
            _ => Ok(()),
        }
    }
}

/// The text of a reply, if it is one.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
