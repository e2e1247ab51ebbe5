//! Calls and answers as numbers: the code that every check passes on its way into the core and back.

use std::sync::Arc;

use napi::bindgen_prelude::{Float64Array, Uint16Array};
use tidegate::host::{BatchGuard, Call, CompletionQueue, Outcome, cohort_size};
use tidegate::{AsPolicy, AsyncLimiter, CheckOptions, Cost, Error, ErrorKind, Policy, PolicyRef, Result};

use crate::array_layout::{CallField, CallKind, Special};
use crate::node_completions::{NodeCompletions, is_call};
use crate::number;

const CHECK: u8 = CallKind::Check as u8;
const PEEK: u8 = CallKind::Peek as u8;
const CHARGE: u8 = CallKind::Charge as u8;
const TAKE: u8 = CallKind::Take as u8;

/// A policy that calls name by its index in a list, so that no text crosses with each of them.
#[derive(Clone)]
pub(crate) enum OwnedPolicyRef {
    /// A name or a notation. Each call looks it up, so that a reload takes effect at once.
    Text(String),
    /// A policy that the caller made.
    Policy(Policy),
}

impl AsPolicy for OwnedPolicyRef {
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}

/// A call without its key and its metadata. Its numbers are those of [`CallField`].
pub(crate) struct BatchCall {
    pub(crate) ticket: u64,
    pub(crate) policy: f64,
    pub(crate) kind: u8,
    pub(crate) cost: f64,
}

/// How many numbers a call has.
const CALL_LENGTH: usize = CallField::Length as usize;

/// A limiter, and the arrays through which JavaScript talks to it.
pub(crate) struct BatchCodec {
    pub(crate) limiter: AsyncLimiter,
    pub(crate) completions: Arc<NodeCompletions>,
    /// The completions, as the core takes them.
    pub(crate) queue: Arc<dyn CompletionQueue>,
    pub(crate) policy_refs: Vec<OwnedPolicyRef>,
    calls: Float64Array,
    key_text: Uint16Array,
    answers: Float64Array,
    /// The key of one call. Its memory is used again, so that a key costs no allocation here.
    key: String,
    /// What is to be written to `answers`.
    records: Vec<f64>,
    /// How many calls `records` answers: the callers that mostly call again together.
    answered: usize,
}

impl BatchCodec {
    pub(crate) fn new(
        limiter: AsyncLimiter,
        completions: NodeCompletions,
        calls: Float64Array,
        key_text: Uint16Array,
        answers: Float64Array,
    ) -> Self {
        let completions = Arc::new(completions);
        Self {
            limiter,
            queue: completions.clone(),
            completions,
            policy_refs: Vec::new(),
            calls,
            key_text,
            answers,
            key: String::new(),
            records: Vec::new(),
            answered: 0,
        }
    }

    /// Makes the calls of `calls`: how many numbers of `answers` were answered at once.
    pub(crate) fn send(&mut self) -> i32 {
        self.records.clear();
        self.answered = 0;
        // The calls of one crossing are sent together, when the guard is dropped.
        self.post_all(&BatchGuard::default());
        self.hand_over()
    }

    /// Fetches what was delivered: the same.
    pub(crate) fn collect(&mut self) -> i32 {
        self.answered = self.completions.collect(&mut self.records);
        self.hand_over()
    }

    fn post_all(&mut self, batch: &BatchGuard) {
        let count = self.calls.last().copied().unwrap_or_default() as usize;
        let mut key_start = 0;
        for index in 0..count {
            let Some(call) = self.call(index) else { break };
            let key_end = key_start + call[CallField::KeyLength as usize] as usize;
            let ticket = call[CallField::Ticket as usize] as u64;
            let key = self.key_text.get(key_start..key_end).unwrap_or_default();
            let outcome = match read_key(key, &mut self.key) {
                Ok(()) => self.post(
                    &BatchCall {
                        ticket,
                        policy: call[CallField::Policy as usize],
                        kind: call[CallField::Kind as usize] as u8,
                        cost: call[CallField::Cost as usize],
                    },
                    &self.key,
                    None,
                    Some(batch),
                ),
                Err(error) => Some(Err(error)),
            };
            key_start = key_end;
            if let Some(outcome) = outcome {
                self.answered += 1;
                self.completions.write(&mut self.records, ticket, outcome);
            }
        }
    }

    fn call(&self, index: usize) -> Option<[f64; CALL_LENGTH]> {
        self.calls.get(index * CALL_LENGTH..)?.first_chunk().copied()
    }

    /// Makes one call; a check may have metadata. `None` when its answer will be delivered.
    pub(crate) fn post(
        &self,
        call: &BatchCall,
        key: &str,
        meta: Option<Vec<u8>>,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Outcome>> {
        let parts = self.policy_ref(call.policy).and_then(|policy_ref| Ok((policy_ref, Cost::from(number::cost(call.cost)?))));
        let (policy_ref, cost) = match parts {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error)),
        };
        let operation = match call.kind {
            CHECK | TAKE => Call::Check(CheckOptions { meta, partial: call.kind == TAKE, ..cost.into() }),
            PEEK => Call::Peek(cost),
            CHARGE => Call::Charge(cost),
            _ => Call::Refund(cost),
        };
        Some(self.limiter.post(policy_ref, key, &operation, call.ticket, &self.queue, batch)?.map(Outcome::Decision))
    }

    pub(crate) fn policy_ref(&self, number: f64) -> Result<&OwnedPolicyRef> {
        self.policy_refs
            .get(number as usize)
            .ok_or_else(|| Error::new(ErrorKind::PolicyUnknown, "a call names a policy that was not resolved"))
    }

    /// Hands over what one call outside of a batch came to; nothing yet where its answer will be delivered.
    pub(crate) fn answer(&mut self, ticket: u64, outcome: Option<Result<Outcome>>) -> i32 {
        let Some(outcome) = outcome else { return 0 };
        self.records.clear();
        self.answered = usize::from(is_call(ticket));
        self.completions.write(&mut self.records, ticket, outcome);
        self.hand_over()
    }

    /// Copies the records to `answers`: how many numbers there are. The last number of the array says how many calls should
    /// cross together next.
    fn hand_over(&mut self) -> i32 {
        #[allow(
            unsafe_code,
            reason = "only this function writes to the array, and JavaScript reads it after the crossing"
        )]
        let answers = unsafe { self.answers.as_mut() };
        let Some((cohort, answers)) = answers.split_last_mut() else { return Special::TooMany as i32 };
        *cohort = cohort_size(self.answered) as f64;
        match answers.get_mut(..self.records.len()) {
            Some(answers) => answers.copy_from_slice(&self.records),
            None => return Special::TooMany as i32,
        }
        self.records.len() as i32
    }

    /// The answers that did not fit.
    pub(crate) fn overflow(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.records)
    }
}

/// Reads a key that crossed as UTF-16 units.
fn read_key(units: &[u16], key: &mut String) -> Result<()> {
    key.clear();
    if units.iter().all(|unit| *unit < 128) {
        key.extend(units.iter().map(|unit| char::from(*unit as u8)));
        return Ok(());
    }
    for read in char::decode_utf16(units.iter().copied()) {
        key.push(read.map_err(|_| {
            Error::new(ErrorKind::KeyInvalid, "a key holds half a surrogate pair: it must be well-formed text")
        })?);
    }
    Ok(())
}
