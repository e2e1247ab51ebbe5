//! The first words on a connection: who we are, and who is there.

use redis::Value;

use super::failure::{self, Failure};
use crate::error::{Error, ErrorKind};
use crate::store::url::Login;

/// Who should answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The one server there is.
    Single,
    /// Whom the sentinels call the primary, or a replica.
    Primary,
    Replica,
    /// A node of a cluster, and one that is asked although it is a replica.
    Node,
    ReplicaNode,
    Sentinel,
}

/// What a server says it is; an old one or a proxy may not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Greeting {
    mode: String,
    role: String,
}

/// The commands that open a connection, and how many there are.
pub(super) struct Hello {
    pub(super) packed: Vec<u8>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Login,
    Hello,
    Other,
}

impl Hello {
    pub(super) fn new(login: &Login, expected: Expected) -> Self {
        let mut hello = Self { packed: Vec::new(), steps: Vec::new() };
        if let Some(password) = &login.password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &login.user {
                auth.arg(user);
            }
            hello.say(Step::Login, auth.arg(password));
        }
        let mut words = redis::cmd("HELLO");
        if login.resp3 {
            words.arg(3);
        }
        hello.say(Step::Hello, &words);
        if login.database > 0 {
            hello.say(Step::Other, redis::cmd("SELECT").arg(login.database));
        }
        if expected == Expected::ReplicaNode {
            hello.say(Step::Other, &redis::cmd("READONLY"));
        }
        hello
    }

    fn say(&mut self, step: Step, cmd: &redis::Cmd) {
        cmd.write_packed_command(&mut self.packed);
        self.steps.push(step);
    }

    pub(super) fn replies(&self) -> usize {
        self.steps.len()
    }

    /// Whether the replies are those of whom we expected.
    pub(super) fn check(
        &self,
        replies: &[Value],
        login: &Login,
        expected: Expected,
        shown: &str,
    ) -> Result<(), Failure> {
        let mut greeting = Greeting::default();
        for (step, reply) in self.steps.iter().zip(replies) {
            match (step, reply) {
                (Step::Login, Value::ServerError(error)) if !says_it_is_full(error) => {
                    return Err(Failure::settled(Error::new(
                        ErrorKind::StoreRejected,
                        format!("{shown} refused the user or the password: give the right ones in the store URL"),
                    )));
                }
                // An old server or a proxy may not know the word; only the third protocol needs it.
                (Step::Hello, Value::ServerError(error)) if error.code() == "ERR" && !says_it_is_full(error) => {
                    if login.resp3 {
                        return Err(Failure::settled(Error::config(format!(
                            "{shown} does not speak the third protocol: leave protocol=3 out of the store URL"
                        ))));
                    }
                }
                (_, Value::ServerError(error)) => {
                    return Err(Failure::elsewhere(failure::refused(shown, error)));
                }
                (Step::Hello, reply) => greeting = Greeting::read(reply),
                _ => {}
            }
        }
        greeting.check(expected, shown)
    }
}

fn says_it_is_full(error: &redis::ServerError) -> bool {
    error.details().is_some_and(|detail| detail.starts_with("max number of clients"))
}

impl Greeting {
    fn read(reply: &Value) -> Self {
        let mut greeting = Self::default();
        let mut note = |name: &Value, value: &Value| match (text(name), text(value)) {
            (Some("mode"), Some(mode)) => mode.clone_into(&mut greeting.mode),
            (Some("role"), Some(role)) => role.clone_into(&mut greeting.role),
            _ => {}
        };
        match reply {
            Value::Array(items) => items.chunks_exact(2).for_each(|pair| note(&pair[0], &pair[1])),
            Value::Map(pairs) => pairs.iter().for_each(|(name, value)| note(name, value)),
            _ => {}
        }
        greeting
    }

    fn check(&self, expected: Expected, shown: &str) -> Result<(), Failure> {
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
        let config = |wanted: &str| Err(Failure::settled(Error::config(wrong(wanted) + advice)));
        let stray = |wanted: &str| Err(Failure::elsewhere(Error::new(ErrorKind::StoreUnavailable, wrong(wanted))));
        match (expected, self.mode.as_str()) {
            (Expected::Single, "cluster" | "sentinel") => config("a single server"),
            (Expected::Sentinel, mode) if mode != "sentinel" => config("a sentinel"),
            (Expected::Node | Expected::ReplicaNode, mode) if mode != "cluster" => config("a node of a cluster"),
            (Expected::Primary | Expected::Replica, "cluster" | "sentinel") => stray("a server that sentinels watch"),
            (Expected::Primary, _) if self.role != "master" => stray("the primary"),
            _ => Ok(()),
        }
    }
}

/// A word of a reply.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
