//! What was sent to a server and not answered yet.

use std::time::Instant;

use redis::Value;

use super::call::CallState;
use super::pending_call::{Callers, PendingCall, Recipient};
use crate::store::redis::script::{Batch, Requests};

/// A command that was sent. Replies come in the order of the commands.
pub(crate) struct InFlight<C: Callers> {
    pub(crate) kind: BatchKind<C>,
    /// Where it begins and ends in the stream of bytes.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The most bytes of its reply.
    pub(crate) max_reply: usize,
}

impl<C: Callers> InFlight<C> {
    /// Whether no caller waits for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(&self.kind, BatchKind::Script(batch) if !batch.is_awaited())
    }
}

#[expect(clippy::large_enum_variant, reason = "nearly all are script calls, and a box would be one more allocation")]
pub(crate) enum BatchKind<C: Callers> {
    Script(ScriptCall<C>),
    /// ASKING, before a script call.
    Asking,
    /// A question to a silent server: see `in_step.rs`.
    Probe(u32),
}

/// A batch of calls, sent as one script call.
pub(crate) struct ScriptCall<C: Callers> {
    pub(crate) batch: Batch,
    pub(crate) members: Vec<BatchMember<C>>,
    /// The queue that counts it: a slot, or all.
    pub(crate) queue: u16,
    /// Whether the whole script was sent, and not its digest.
    pub(crate) in_full: bool,
    /// Whether it was sent after ASKING.
    pub(crate) asking: bool,
    /// An error that is believed once the connection is known to be in step: see `in_step.rs`.
    pub(crate) doubtful: Option<Value>,
}

/// A call in a batch.
pub(crate) struct BatchMember<C: Callers> {
    state: CallState,
    slot: u16,
    requests: usize,
    /// `None` once the call was given up.
    recipient: Option<Recipient<C>>,
}

impl<C: Callers> BatchMember<C> {
    /// A call, and its requests, which become part of a batch.
    pub(crate) fn new(call: PendingCall<C>) -> (Self, Requests) {
        let PendingCall { requests, slot, state, recipient, .. } = call;
        (Self { state, slot, requests: requests.len(), recipient: Some(recipient) }, requests)
    }

    pub(crate) fn into_recipient(self) -> (usize, Option<Recipient<C>>) {
        (self.requests, self.recipient)
    }
}

impl<C: Callers> ScriptCall<C> {
    /// The calls that were not given up, in order.
    pub(crate) fn into_calls(self) -> impl DoubleEndedIterator<Item = PendingCall<C>> {
        let (time, grouping) = (self.batch.now(), self.batch.grouping());
        let mut requests = self.batch.into_requests().into_iter();
        let calls: Vec<PendingCall<C>> = self
            .members
            .into_iter()
            .filter_map(|BatchMember { state, slot, requests: count, recipient }| {
                let requests = requests.by_ref().take(count).collect();
                recipient.map(|recipient| PendingCall { requests, grouping, time, slot, state, recipient })
            })
            .collect();
        calls.into_iter()
    }

    /// Moves the calls whose attempt is over to `late`, and says whether there were any. Calls `next` with the
    /// attempt deadline of each of the others.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        next: &mut impl FnMut(Instant),
        late: &mut Vec<PendingCall<C>>,
    ) -> bool {
        let (mut first, before) = (0, late.len());
        for member in &mut self.members {
            let own = first..first + member.requests;
            first = own.end;
            if member.recipient.is_some() && member.state.attempt_deadline > now {
                next(member.state.attempt_deadline);
            } else if let Some(recipient) = member.recipient.take() {
                let requests = self.batch.requests()[own].iter().cloned().collect();
                let (time, grouping) = (self.batch.now(), self.batch.grouping());
                let BatchMember { state, slot, .. } = *member;
                late.push(PendingCall { requests, grouping, time, slot, state, recipient });
            }
        }
        late.len() > before
    }

    /// Takes out the calls of these requests, of a batch in which each call has one request.
    pub(crate) fn take(&mut self, requests: &[u16]) -> Vec<PendingCall<C>> {
        let (time, grouping, batch) = (self.batch.now(), self.batch.grouping(), &self.batch);
        let members = &mut self.members;
        let call = |request: &u16| {
            let member = members.get_mut(usize::from(*request))?;
            let recipient = member.recipient.take()?;
            let requests = batch.requests().get(usize::from(*request)).into_iter().cloned().collect();
            let BatchMember { state, slot, .. } = *member;
            Some(PendingCall { requests, grouping, time, slot, state, recipient })
        };
        requests.iter().filter_map(call).collect()
    }

    /// Whether a caller still waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.members.iter().any(|member| member.recipient.is_some())
    }
}
