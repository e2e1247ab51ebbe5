//! Interprets a reply: it is the answer, the script is missing, or the call belongs elsewhere.

use redis::{ServerError, Value};

use super::call::Obstacle;
use super::failure::{self, Failure};
use super::server_directory::Server;
use super::topology::SLOTS;
use super::topology_reply::address_of;
use crate::store::redis::script::Batch;
use crate::store::url::Address;

/// The meaning of a reply for its call.
#[derive(Debug)]
pub(crate) enum ReplyMeaning {
    /// The reply is final, even if it is an error.
    Answer,
    /// The server does not know the script. The call did not run.
    UnknownScript,
    /// The call needs the edges of calendars around this time of the server. It did not run.
    OtherTime(u64),
    /// This server did not serve the call. It did not run.
    NotServed(Obstacle),
    /// The server does not serve a call over several slots as one. No part of it ran.
    NotAsOne {
        /// True if the server knows such calls at all.
        known: bool,
    },
    /// The reply answers another call.
    OutOfStep,
}

impl ReplyMeaning {
    /// `several` is true if the store has several servers.
    pub(crate) fn of(reply: &Value, batch: &Batch, server: &Server, several: bool) -> Self {
        if let Some(time) = batch.other_time(reply) {
            return Self::OtherTime(time);
        }
        match reply {
            _ if is_unknown_script(reply) => Self::UnknownScript,
            Value::ServerError(error) if batch.is_over_slots() && !is_compiled(error) => {
                Self::NotAsOne { known: false }
            }
            Value::ServerError(error) if batch.is_over_slots() && concerns_one(error) => Self::NotAsOne { known: true },
            Value::ServerError(error) => Self::of_error(error, server, several),
            _ if !batch.is_answered_by(reply) => Self::OutOfStep,
            // A replica runs the script and refuses its writes. Its denials may be stale, so the whole batch is sent again.
            Value::Array(items) if several => {
                let readonly = items.iter().find_map(|item| match item {
                    Value::ServerError(error) if error.code() == "READONLY" => Some(error),
                    _ => None,
                });
                let wrong = |error| Self::NotServed(Obstacle::WrongServer(failure::wrong_server(&server.shown, error)));
                readonly.map_or(Self::Answer, wrong)
            }
            _ => Self::Answer,
        }
    }

    /// The time of the server, if the call needs other edges.
    pub(crate) const fn other_time(&self) -> Option<u64> {
        match self {
            Self::OtherTime(time) => Some(*time),
            _ => None,
        }
    }

    /// True if an error would make Tidegate send the call again. It names no call: see `in_step.rs`.
    pub(crate) fn is_doubtful(&self, reply: &Value) -> bool {
        matches!(self, Self::UnknownScript | Self::NotServed(_) | Self::NotAsOne { .. })
            && matches!(reply, Value::ServerError(_))
    }

    fn of_error(error: &ServerError, server: &Server, several: bool) -> Self {
        let refused = || failure::refused(&server.shown, error);
        Self::NotServed(match error.code() {
            "MOVED" | "ASK" if several => {
                redirect(error, &server.address).unwrap_or_else(|| Obstacle::Failed(Failure::of_call(refused())))
            }
            "TRYAGAIN" => Obstacle::Split(refused()),
            "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" if several => {
                Obstacle::WrongServer(failure::wrong_server(&server.shown, error))
            }
            "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" => Obstacle::Failed(Failure::of_call(refused())),
            _ => return Self::Answer,
        })
    }
}

/// True if the server does not know the script. The call did not run.
fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// False if the server did not compile the script. Redis before 7 and Dragonfly compile none for several slots.
fn is_compiled(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default();
    let refusals = ["Error compiling script", "script shebang", "Invalid flag: allow-cross-slot-keys"];
    error.code() != "ERR" || !refusals.iter().any(|words| details.contains(words))
}

/// True if an error may concern one of the keys, or a write that only some of the calls need. Such an error comes
/// before anything has run.
fn concerns_one(error: &ServerError) -> bool {
    matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN" | "OOM" | "MISCONF" | "NOREPLICAS" | "NOPERM")
}

/// `MOVED slot host:port` or `ASK slot host:port`.
fn redirect(error: &ServerError, here: &Address) -> Option<Obstacle> {
    let mut words = error.details().unwrap_or_default().split(' ');
    let slot = words.next().and_then(|slot| slot.parse().ok()).filter(|slot| usize::from(*slot) < SLOTS);
    let address = address(words.next()?, here)?;
    match (error.code(), slot) {
        ("MOVED", Some(slot)) => Some(Obstacle::Moved(slot, address)),
        ("ASK", _) => Some(Obstacle::Ask(address)),
        _ => None,
    }
}

/// Reads `host:port`. A node that does not know its own name leaves out the host and means the host it was reached at.
fn address(text: &str, here: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    address_of(host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?, here)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use smallvec::smallvec;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::redis::protocol::handshake::ExpectedRole;
    use crate::store::redis::script::{Grouping, Request};
    use crate::store::request::{Entry, Operation};

    fn meaning(text: &str, several: bool) -> ReplyMeaning {
        let reply = redis::parse_redis_value(text.as_bytes()).expect("a reply");
        ReplyMeaning::of(&reply, &batch(), &server(), several)
    }

    fn server() -> Server {
        Server {
            address: Address::Tcp("here".into(), 1),
            login: Arc::default(),
            role: ExpectedRole::Single,
            shown: "here:1".to_owned(),
            timeout: Duration::from_secs(1),
            is_followed: true,
        }
    }

    /// A batch of one request.
    fn batch() -> Batch {
        let plan = crate::plan::Plan::of(&crate::policy::Policy::parse("5/minute").expect("a policy"));
        let entry = Entry { plan: &plan, key: "k", operation: Operation::charge(1) };
        Batch::new("tg".into(), None, Grouping::Independent, smallvec![Request::new(&"tg".into(), &entry)])
    }

    #[test]
    fn replies_say_where_a_call_belongs() {
        use Obstacle::{Ask, Failed, Moved, Split, WrongServer};
        use ReplyMeaning::{Answer, NotServed, OutOfStep, UnknownScript};

        let at = |host: &str, port| Address::Tcp(host.into(), port);
        let moved = |text, slot, to| match meaning(text, true) {
            NotServed(Moved(found, address)) => assert_eq!((found, address), (slot, to), "{text}"),
            other => panic!("{text} is {other:?}"),
        };
        moved("-MOVED 7 10.0.0.1:7001\r\n", 7, at("10.0.0.1", 7001));
        moved("-MOVED 7 :7001\r\n", 7, at("here", 7001));
        assert!(matches!(meaning("-ASK 7 ::1:7001\r\n", true), NotServed(Ask(to)) if to == at("::1", 7001)));
        for text in [
            "MOVED 7 a:0",
            "MOVED 7 a:65536",
            "MOVED 7 a:-1",
            "MOVED 7",
            "MOVED 16384 a:1",
            "MOVED -1 a:1",
            "ASK 7 a\x1b[2J:1",
        ] {
            assert!(matches!(meaning(&format!("-{text}\r\n"), true), NotServed(Failed(_))), "{text}");
        }
        assert!(matches!(meaning("-NOSCRIPT No matching script\r\n", false), UnknownScript));
        assert!(matches!(meaning("-TRYAGAIN Multiple keys\r\n", true), NotServed(Split(_))));
        assert!(matches!(meaning("-LOADING Redis is loading\r\n", false), NotServed(Failed(_))));
        let no_primary = meaning("-READONLY You can't write against a read only replica.\r\n", true);
        let NotServed(WrongServer(error)) = no_primary else { panic!("{no_primary:?}") };
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "the breaker hears of a store without a primary");
        for text in ["-NOPERM no\r\n", "-OOM no\r\n"] {
            assert!(matches!(meaning(text, true), Answer), "{text}");
        }
        for text in ["+OK\r\n", ":1\r\n", "*0\r\n", "*2\r\n$0\r\n\r\n$12\r\n123456789012\r\n", "$9\r\n1 2 3 x y\r\n"] {
            assert!(matches!(meaning(text, true), OutOfStep), "{text}");
        }
    }

    #[test]
    fn a_call_over_several_slots_may_not_be_served_as_one() {
        let batch = batch().over_slots();
        let of = |text: &str| {
            let reply = redis::parse_redis_value(text.as_bytes()).expect("a reply");
            let meaning = ReplyMeaning::of(&reply, &batch, &server(), true);
            let doubtful = meaning.is_doubtful(&reply);
            (meaning, doubtful)
        };
        for text in [
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'\r\n",
            "-ERR Unexpected flag in script shebang: allow-cross-slot-keys\r\n",
            "-ERR Invalid flag: allow-cross-slot-keys\r\n",
        ] {
            assert!(matches!(of(text), (ReplyMeaning::NotAsOne { known: false }, true)), "{text}");
        }
        for text in ["-MOVED 7 10.0.0.1:7001\r\n", "-ASK 7 10.0.0.1:7001\r\n", "-OOM full\r\n", "-NOPERM no\r\n"] {
            assert!(matches!(of(text), (ReplyMeaning::NotAsOne { known: true }, true)), "{text}");
        }
        for text in [
            "-ERR Script attempted to access a non local key in a cluster node\r\n",
            "-ERR Script attempted to access keys that do not hash to the same slot\r\n",
            "-ERR script tried accessing undeclared key, key: tg\r\n",
        ] {
            let item = redis::parse_redis_value(text.as_bytes()).expect("a reply");
            assert_eq!(batch.not_local(&Value::Array(vec![item])).to_vec(), [0], "{text}");
        }
        // A script that failed while it ran may have done a part of its work.
        assert!(matches!(of("-ERR user_script:9: attempt to index a nil value\r\n"), (ReplyMeaning::Answer, false)));
    }

    #[test]
    fn a_replica_that_refuses_an_entry_is_the_wrong_server() {
        let batch = batch();
        let error = redis::parse_redis_value(b"-READONLY no\r\n").expect("a reply");
        let seal = [&[0; 8][..], &batch.number().to_le_bytes()].concat();
        let reply = Value::Array(vec![error, Value::BulkString(seal)]);
        let server = server();
        let of = |several| ReplyMeaning::of(&reply, &batch, &server, several);
        assert!(matches!(of(true), ReplyMeaning::NotServed(Obstacle::WrongServer(_))));
        assert!(matches!(of(false), ReplyMeaning::Answer));
    }
}
