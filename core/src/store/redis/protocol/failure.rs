//! The reasons why a call has no answer: the message for its caller, and the conclusions for the transport.

use std::io;
use std::time::Duration;

use redis::ServerError;

use crate::error::{Error, ErrorKind};
use crate::store::redis::script;

/// Why a call has no answer.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// True if the call may have run all the same. Only a call that certainly did not run may be sent again.
    pub(crate) may_have_run: bool,
    /// True if the server itself failed. If there are several, another one may serve the call.
    pub(crate) server_failed: bool,
}

impl Failure {
    /// The call certainly did not run, and no other server would run it.
    pub(crate) fn of_call(error: Error) -> Self {
        Self { error: not_run(error), may_have_run: false, server_failed: false }
    }

    /// The call certainly did not run, and another server may serve it.
    pub(crate) fn of_server(error: Error) -> Self {
        Self { error: not_run(error), may_have_run: false, server_failed: true }
    }

    /// `sent` is true if the whole command was sent. Then the server may have run it.
    pub(crate) fn of_io(source: &io::Error, sent: bool, shown: &str, timeout: Duration) -> Self {
        let error = match source.kind() {
            io::ErrorKind::TimedOut => late(shown, timeout, source.get_ref().map(ToString::to_string)),
            _ if sent => lost(shown, source),
            _ => unreachable(shown, source),
        };
        let error = if sent { error } else { not_run(error) }.because(source);
        Self { error, may_have_run: sent, server_failed: true }
    }
}

/// Marks the error of a call that did not run. A timeout is not marked, because it leaves open if the call was sent.
fn not_run(error: Error) -> Error {
    if error.kind() == ErrorKind::StoreTimeout { error } else { error.of_no_run() }
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::StoreUnavailable, message)
}

/// The server did not answer in time.
pub(crate) fn timed_out(shown: &str, timeout: Duration) -> Error {
    late(shown, timeout, None)
}

fn late(shown: &str, timeout: Duration, why: Option<String>) -> Error {
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Error::new(ErrorKind::StoreTimeout, format!("{shown} did not answer within {} ms{why}", timeout.as_millis()))
}

fn unreachable(shown: &str, error: &io::Error) -> Error {
    // The reason itself contains advice.
    if error.kind() == io::ErrorKind::InvalidData {
        return unavailable(format!("{shown} cannot be used: {}", reason(error)));
    }
    unavailable(format!(
        "{shown} cannot be reached: {}: check that the server runs and that the URL is right",
        reason(error)
    ))
}

/// The connection ended between a call and its answer.
fn lost(shown: &str, error: &io::Error) -> Error {
    unavailable(format!("{shown} went away before it answered ({}): the call may have been counted", reason(error)))
}

/// The reply holds no answer to this call.
pub(crate) fn no_answer(shown: &str) -> Error {
    Error::new(ErrorKind::StoreRejected, format!("{shown} sent a reply without an answer"))
}

/// The store URL does not let calls go to that server.
pub(crate) fn not_followed(shown: &str) -> Failure {
    Failure::of_server(Error::new(
        ErrorKind::StoreRejected,
        format!(
            "{shown} was named by another server, and the option follow of the store URL does not list it: add its host"
        ),
    ))
}

/// The server sent bytes that are no expected reply.
pub(crate) fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A reply answers another call, or none.
pub(crate) fn out_of_step() -> io::Error {
    malformed("a reply does not belong to its call: something between here and the server loses or repeats replies")
}

/// The server closed the connection.
pub(crate) fn closed_by_server() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it ended the connection")
}

/// The error for a server's error reply. Some replies mean that the server serves no call for now.
pub(crate) fn refused(shown: &str, error: &ServerError) -> Error {
    let detail = error.details().unwrap_or_default();
    let why = match error.code() {
        "LOADING" => "is loading its data and serves no call yet",
        "BUSY" => "is busy with a long script: wait for it, or end it with SCRIPT KILL",
        "MASTERDOWN" => "is a replica that has lost its primary",
        "CLUSTERDOWN" => "is a node of a cluster that is down: no node serves some of its slots",
        "TRYAGAIN" => "is handing over the keys of this call to another node",
        "ERR" if detail.starts_with("max number of clients") => "has no connection left: raise its maxclients",
        _ => return script::rejected(error),
    };
    unavailable(format!("{shown} {why}"))
}

/// The error for a server that another one should have replaced by now. A single replica refuses writes for ever. Among
/// several servers the refusal means that there is no primary for now.
pub(crate) fn wrong_server(shown: &str, error: &ServerError) -> Error {
    match error.code() {
        "READONLY" => unavailable(format!("{shown} is a replica, and no primary was found")),
        _ => refused(shown, error),
    }
}

fn reason(error: &io::Error) -> String {
    error.to_string().trim_end_matches('.').to_owned()
}

/// No primary serves the slot.
pub(crate) fn uncovered(shown: &str, slot: u16) -> Error {
    unavailable(format!("no node of {shown} serves the slot {slot}: the cluster does not cover all slots"))
}

/// The servers do not agree about which of them serves a call.
pub(crate) fn redirected(shown: &str) -> Error {
    unavailable(format!(
        "the nodes of {shown} send a call from one to another and none serves it: `redis-cli --cluster check` finds slots \
             that they do not agree about"
    ))
}
