//! Calls of the engine: on their way to the router, and back to their callers.

use std::collections::VecDeque;
use std::time::Instant;

use super::epoll_set::ReplyReader;
use super::panics::Caller;
use crate::error::{Error, ErrorKind};
use crate::store::completion::{WakeSet, WakeTarget};
use crate::store::redis::protocol::{Callers, Completed, PendingCall, Recipient};
use crate::store::redis::script::Request;
use crate::store::request::Answer;

/// Calls on their way to the router.
#[derive(Default)]
pub(crate) struct CallQueue {
    pub(super) calls: VecDeque<EngineCall>,
    pub(super) closed: bool,
    /// A change of who reads, which the thread has not made yet.
    pub(super) reader_change: Option<ReplyReader>,
}

/// The callers of the engine.
#[derive(Default)]
pub(crate) struct EngineCallers;

impl Callers for EngineCallers {
    type One = Caller<Answer>;
    type All = Caller<Vec<Answer>>;
}

/// A call for the engine.
pub(crate) enum EngineCall {
    Call(PendingCall<EngineCallers>),
    Transaction {
        requests: Vec<Request>,
        slots: Vec<u16>,
        time: Option<u64>,
        deadline: Instant,
        caller: Caller<Vec<Answer>>,
    },
}

impl EngineCall {
    pub(super) fn fail(self, error: &Error) -> WakeTarget {
        match self {
            Self::Call(PendingCall { recipient: Recipient::One(caller), .. }) => caller.complete(Err(error.clone())),
            Self::Call(PendingCall { recipient: Recipient::All(caller), .. }) | Self::Transaction { caller, .. } => {
                caller.complete(Err(error.clone()))
            }
            // A group belongs to a transaction, which the router makes.
            Self::Call(PendingCall { recipient: Recipient::Group { .. }, .. }) => None,
        }
    }
}

/// Gives answers out, and then wakes each waiting thread or loop once.
pub(super) fn complete_all(completed: &mut Vec<Completed<EngineCallers>>) {
    if completed.is_empty() {
        return;
    }
    let mut wakes = WakeSet::default();
    completed.drain(..).for_each(|completed| {
        wakes.add(match completed {
            Completed::One(caller, answer) => caller.complete(answer),
            Completed::All(caller, answers) => caller.complete(answers),
        });
    });
}

/// A task of the thread was given up, which only happens when the thread ends.
pub(super) fn interrupted() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the thread for Redis ended before the server answered")
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the limiter is closed")
}
