//! What went wrong, in words for a caller, and what may be concluded from it.

use std::io;
use std::time::Duration;

use redis::ServerError;

use super::script;
use crate::error::{Error, ErrorKind};

/// A call without an answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether it may have run all the same. One that certainly did not may be sent again.
    pub(super) may_have_run: bool,
    /// Whether the server, not its answer, is what is wrong: where there are several, another may serve.
    pub(super) elsewhere: bool,
}

impl Failure {
    /// It certainly did not run, and no other server would change that.
    pub(super) const fn settled(error: Error) -> Self {
        Self { error, may_have_run: false, elsewhere: false }
    }

    /// It certainly did not run here; another server may serve.
    pub(super) const fn elsewhere(error: Error) -> Self {
        Self { error, may_have_run: false, elsewhere: true }
    }

    pub(super) fn of_io(error: &io::Error, sent: bool, shown: &str, timeout: Duration) -> Self {
        let error = match error.kind() {
            io::ErrorKind::TimedOut => late(shown, timeout),
            _ if sent => lost(shown, error),
            _ => unreachable(shown, error),
        };
        Self { error, may_have_run: sent, elsewhere: true }
    }
}

/// The server did not answer in time.
pub(super) fn late(shown: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::StoreTimeout, format!("{shown} did not answer within {} ms", timeout.as_millis()))
}

fn unreachable(shown: &str, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        format!("{shown} cannot be reached: {}: check that the server runs and that the URL is right", words(error)),
    )
}

/// The connection ended between a call and its answer.
pub(super) fn lost(shown: &str, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::StoreUnavailable,
        format!("{shown} went away before it answered ({}): whether the call was counted is not known", words(error)),
    )
}

/// The server's answer had no answer to this call.
pub(super) fn silence(shown: &str) -> Error {
    Error::new(ErrorKind::StoreRejected, format!("{shown} answered without an answer"))
}

/// What came back is not what Redis speaks.
pub(super) fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not speak the protocol of Redis")
}

/// The other side ended the connection.
pub(super) fn hung_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it ended the connection")
}

/// What a server's error means to a caller: some say that the server serves nobody for now.
pub(super) fn refused(shown: &str, error: &ServerError) -> Error {
    let detail = error.details().unwrap_or_default();
    let why = match error.code() {
        "LOADING" => "is loading its data and serves nobody yet",
        "BUSY" => "is busy with a long script: wait for it, or end it with SCRIPT KILL",
        "MASTERDOWN" => "is a replica that has lost its primary",
        "CLUSTERDOWN" => "is a node of a cluster that is down: some of its slots are served by nobody",
        "TRYAGAIN" => "is handing over the keys of this call to another node",
        "ERR" if detail.starts_with("max number of clients") => "has no connection left: raise its maxclients",
        _ => return script::rejected(error),
    };
    Error::new(ErrorKind::StoreUnavailable, format!("{shown} {why}"))
}

fn words(error: &io::Error) -> String {
    error.to_string().trim_end_matches('.').to_owned()
}
