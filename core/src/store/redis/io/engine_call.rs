//! Calls of the engine: on their way to the router, and back to their callers.

use std::collections::VecDeque;
use std::time::Instant;

use super::epoll_set::ReplyReader;
use crate::error::{Error, ErrorKind};
use crate::store::completion::{BatchCompletion, Completion, WakeSet, WakeTarget};
use crate::store::redis::protocol::{Callers, Completed, PendingCall, Recipient};
use crate::store::redis::script::Request;

/// Calls on their way to the router.
#[derive(Default)]
pub(crate) struct CallQueue {
    pub(super) calls: VecDeque<EngineCall>,
    pub(super) closed: bool,
    /// A change of who reads, which the thread has not made yet.
    pub(super) reader_change: Option<ReplyReader>,
}

/// The callers of the engine, known by what is called with their answers.
pub(crate) struct EngineCallers;

impl Callers for EngineCallers {
    type One = Completion;
    type All = BatchCompletion;
}

/// A call for the engine.
pub(crate) enum EngineCall {
    Call(PendingCall<EngineCallers>),
    Transaction {
        requests: Vec<Request>,
        slots: Vec<u16>,
        time: Option<u64>,
        deadline: Instant,
        caller: BatchCompletion,
    },
}

impl EngineCall {
    pub(super) fn fail(self, error: &Error) -> WakeTarget {
        match self {
            Self::Call(PendingCall { recipient: Recipient::One(complete), .. }) => complete(Err(error.clone())),
            Self::Call(PendingCall { recipient: Recipient::All(complete), .. })
            | Self::Transaction { caller: complete, .. } => complete(Err(error.clone())),
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
            Completed::One(complete, answer) => complete(answer),
            Completed::All(complete, answers) => complete(answers),
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
