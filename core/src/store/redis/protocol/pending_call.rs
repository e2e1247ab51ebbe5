//! A call on its way to a server, and the answer for its caller.

use std::time::Instant;

use super::call::CallState;
use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::script::{Grouping, Requests};
use crate::store::request::{Answer, Operation};
use crate::store::url::Address;

/// The types that identify the callers of a driver.
pub(crate) trait Callers: Default {
    /// A caller with one request.
    type One;
    /// A caller with requests that stand or fall together.
    type All;
}

/// A call that has no answer yet.
pub(crate) struct PendingCall<C: Callers> {
    pub(crate) requests: Requests,
    pub(crate) grouping: Grouping,
    /// The time to decide by. Without one the server's clock decides.
    pub(crate) time: Option<u64>,
    pub(crate) slot: u16,
    pub(crate) state: CallState,
    pub(crate) recipient: Recipient<C>,
}

impl<C: Callers> PendingCall<C> {
    /// True if it may use the connection with this number, or a new one for `None`. Units of a lease go back only over
    /// the connection that brought the grant, because the server behind another one may have lost the charge.
    pub(crate) fn may_use(&self, connection: Option<u64>) -> bool {
        self.requests.iter().all(|request| match &request.operation {
            Operation::GiveBack { charge, .. } => charge.connection == 0 || Some(charge.connection) == connection,
            _ => true,
        })
    }
}

/// The error of a call after its connection is gone.
pub(crate) fn connection_is_gone() -> Error {
    let message = "the connection over which units were leased is gone: they stay charged";
    Error::new(ErrorKind::StoreUnavailable, message).of_no_run()
}

/// A call that no server has now.
pub(crate) struct ParkedCall<C: Callers> {
    pub(crate) call: PendingCall<C>,
    pub(crate) resume: Resume,
    /// The error for its caller if there is no time left.
    pub(crate) error: Error,
}

/// When a parked call is routed again.
pub(crate) enum Resume {
    At(Instant),
    /// After the next discovery. If that names the same primary again, there is no other server, and the call fails.
    AfterDiscovery {
        unreachable: Option<Address>,
    },
}

impl<C: Callers> ParkedCall<C> {
    /// When it is routed again at the latest, or fails.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.resume {
            Resume::At(at) => at.min(self.call.state.deadline),
            Resume::AfterDiscovery { .. } => self.call.state.deadline,
        }
    }
}

/// The receiver of the answers.
pub(crate) enum Recipient<C: Callers> {
    One(C::One),
    All(C::All),
    /// A group of a transaction over several slots.
    Group {
        transaction: usize,
        group: usize,
    },
}

/// A finished call.
pub(crate) enum Completed<C: Callers> {
    One(C::One, Result<Answer>),
    All(C::All, Result<Vec<Answer>>),
}

/// A finished call of a transaction.
pub(crate) struct GroupReply {
    pub(crate) transaction: usize,
    pub(crate) group: usize,
    pub(crate) answers: Result<Vec<Answer>>,
}

/// Finished calls of callers, and of transactions that go on from them.
#[derive(Default)]
pub(crate) struct Completions<C: Callers> {
    pub(crate) callers: Vec<Completed<C>>,
    pub(crate) groups: Vec<GroupReply>,
}

impl<C: Callers> Completions<C> {
    pub(crate) fn fail(&mut self, recipient: Recipient<C>, error: &Error) {
        match recipient {
            Recipient::One(caller) => self.callers.push(Completed::One(caller, Err(error.clone()))),
            Recipient::All(caller) => self.callers.push(Completed::All(caller, Err(error.clone()))),
            Recipient::Group { transaction, group } => {
                self.groups.push(GroupReply { transaction, group, answers: Err(error.clone()) });
            }
        }
    }

    /// Gives a recipient the next `count` answers. There are enough.
    pub(crate) fn answer(
        &mut self,
        recipient: Recipient<C>,
        answers: &mut impl Iterator<Item = Result<Answer>>,
        count: usize,
    ) {
        match recipient {
            Recipient::One(caller) => self.callers.extend(answers.next().map(|answer| Completed::One(caller, answer))),
            Recipient::All(caller) => self.callers.push(Completed::All(caller, answers.take(count).collect())),
            Recipient::Group { transaction, group } => {
                self.groups.push(GroupReply { transaction, group, answers: answers.take(count).collect() });
            }
        }
    }
}
