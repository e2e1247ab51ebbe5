//! The commands that were sent to a server and not answered yet.

use std::ops::Range;
use std::time::Instant;

use redis::Value;

use super::call::CallState;
use super::effects::Effects;
use super::in_step::{self, MAX_SHORT_REPLY};
use super::pending_call::{Callers, PendingCall, Recipient};
use super::schedule::NextMoment;
use crate::store::redis::script::{Batch, Requests};

/// A command that was sent, and the place of its bytes. Replies come in the order of the commands.
pub(crate) struct InFlight<C: Callers> {
    pub(crate) command: Command<C>,
    /// The positions in the stream of bytes where it begins and ends.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The most bytes of its reply.
    pub(crate) max_reply: usize,
}

/// A command that a pipeline sends.
#[expect(clippy::large_enum_variant, reason = "nearly all are script calls, and a box would be one more allocation")]
pub(crate) enum Command<C: Callers> {
    Script(ScriptCall<C>),
    /// ASKING, before a script call.
    Asking,
    /// A question to a silent server: see `in_step.rs`.
    Probe(u32),
}

impl<C: Callers> Command<C> {
    /// The most bytes of its reply.
    pub(crate) fn max_reply(&self) -> usize {
        match self {
            Self::Script(call) if call.doubtful.is_none() => call.script.max_reply(),
            _ => MAX_SHORT_REPLY,
        }
    }

    /// True if a reply can answer this command.
    pub(crate) fn is_answered_by(&self, reply: &Value) -> bool {
        match self {
            Self::Asking => in_step::is_status(reply),
            Self::Probe(number) => in_step::is_in_step(reply, *number),
            Self::Script(call) if call.doubtful.is_some() => in_step::is_in_step(reply, call.script.number()),
            Self::Script(call) => matches!(reply, Value::ServerError(_)) || call.script.is_answered_by(reply),
        }
    }
}

/// A batch of calls, sent as one script call.
pub(crate) struct ScriptCall<C: Callers> {
    /// The requests of its calls.
    pub(crate) script: Batch,
    pub(crate) members: Vec<BatchMember<C>>,
    /// The queue that counts it: a slot, or all.
    pub(crate) queue: u16,
    /// True if the whole script was sent, and not its digest.
    pub(crate) in_full: bool,
    /// True if it was sent after ASKING.
    pub(crate) asking: bool,
    /// An error that is not believed until the connection is known to be in step: see `in_step.rs`.
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
    /// Splits a call into a member of a batch and its requests, which become part of the batch.
    pub(crate) fn new(call: PendingCall<C>) -> (Self, Requests) {
        let PendingCall { requests, slot, state, recipient, .. } = call;
        (Self { state, slot, requests: requests.len(), recipient: Some(recipient) }, requests)
    }

    /// Takes the call with these requests out of its batch. `None` if it was given up.
    fn take_call(&mut self, script: &Batch, requests: Range<usize>) -> Option<PendingCall<C>> {
        let (time, grouping) = (script.now(), script.grouping());
        let recipient = self.recipient.take()?;
        let Self { state, slot, .. } = *self;
        let requests = script.requests().get(requests).into_iter().flatten().cloned().collect();
        Some(PendingCall { requests, grouping, time, slot, state, recipient })
    }
}

impl<C: Callers> ScriptCall<C> {
    /// The calls that were not given up, in order.
    pub(crate) fn into_calls(self) -> impl DoubleEndedIterator<Item = PendingCall<C>> {
        let (time, grouping) = (self.script.now(), self.script.grouping());
        let mut requests = self.script.into_requests().into_iter();
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

    /// Moves the calls with an expired attempt to `late`, and returns true if there were any. Sets `next_moment` for
    /// the others.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        next_moment: &mut NextMoment,
        late: &mut Vec<PendingCall<C>>,
    ) -> bool {
        let mut first = 0;
        let before = late.len();
        for member in &mut self.members {
            let own = first..first + member.requests;
            first = own.end;
            if member.recipient.is_some() && member.state.attempt_deadline > now {
                next_moment.set(member.state.attempt_deadline);
            } else {
                late.extend(member.take_call(&self.script, own));
            }
        }
        late.len() > before
    }

    /// Takes out the calls of these requests. Each call of the batch has one request.
    pub(crate) fn take(&mut self, requests: &[u16]) -> Vec<PendingCall<C>> {
        let (members, script) = (&mut self.members, &self.script);
        let call = |request: &u16| {
            let at = usize::from(*request);
            members.get_mut(at)?.take_call(script, at..at + 1)
        };
        requests.iter().filter_map(call).collect()
    }

    /// True if a caller still waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.members.iter().any(|member| member.recipient.is_some())
    }

    /// Gives each recipient the answers of its requests. `connection` is the number of the one that brought the reply.
    pub(crate) fn give_out(self, reply: Value, connection: Option<u64>, effects: &mut Effects<C>) {
        let completions = &mut effects.completions;
        match self.script.answers(reply) {
            Err(error) => self
                .members
                .into_iter()
                .filter_map(|member| member.recipient)
                .for_each(|recipient| completions.fail(recipient, &error)),
            Ok(answers) => {
                let answers = answers.into_iter();
                let mut answers = answers.map(|answer| answer.map(|answer| answer.over_connection(connection)));
                for BatchMember { requests, recipient, .. } in self.members {
                    match recipient {
                        Some(recipient) => completions.answer(recipient, &mut answers, requests),
                        None => drop(answers.by_ref().take(requests).last()),
                    }
                }
            }
        }
    }
}
