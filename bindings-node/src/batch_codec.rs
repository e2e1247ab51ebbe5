//! Calls and answers as numbers. Every check passes through this code on its way into the core and back. Answers wait here until the
//! event loop fetches them.

use std::collections::HashMap;
use std::sync::Arc;

use napi::Status;
use napi::bindgen_prelude::{Float64Array, Uint16Array};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use parking_lot::Mutex;
use tidegate::host::{
    Admission, AskedStep, BatchGuard, Call, CompletionQueue, DENIAL_GENERATIONS, Outcome, Wake, cohort_size,
};
use tidegate::{
    AsPolicy, AsyncLimiter, Attempt, CheckOptions, Error, ErrorKind, Hold, OverriddenKey, Policy, PolicyRef, Result,
};

use crate::answer_record::{write_admission_head, write_attachment, write_decision, write_nothing, write_wait};
use crate::array_layout::{AnswerKind, CallField, CallKind, FIRST_TASK_TICKET, Special};
use crate::number;

const CHECK: u8 = CallKind::Check as u8;
const PEEK: u8 = CallKind::Peek as u8;
const CHARGE: u8 = CallKind::Charge as u8;
const TAKE: u8 = CallKind::Take as u8;
const ACQUIRE: u8 = CallKind::Acquire as u8;

/// A policy that calls name by its index in a list, so that they carry no text.
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

/// A call without its key and its metadata. Its numbers are the ones of [`CallField`].
pub(crate) struct BatchCall {
    pub(crate) ticket: u64,
    pub(crate) policy: f64,
    pub(crate) kind: u8,
    pub(crate) cost: f64,
}

/// The number of numbers of a call.
const CALL_LENGTH: usize = CallField::Length as usize;

/// A limiter, and the arrays that it shares with JavaScript.
pub(crate) struct BatchCodec {
    pub(crate) limiter: AsyncLimiter,
    pub(crate) completions: Arc<NodeCompletions>,
    /// The completions in the form that the core needs.
    pub(crate) queue: Arc<dyn CompletionQueue>,
    /// The policies by the index that calls use, each with its resolved policy at that time.
    pub(crate) policies: Vec<(OwnedPolicyRef, Policy)>,
    calls: Float64Array,
    key_text: Uint16Array,
    answers: Float64Array,
    /// The key of one call. Its memory is used again, so that a key costs no allocation here.
    key: String,
    /// The records that go to `answers`.
    records: Vec<f64>,
    /// The number of calls that `records` answers. Their callers mostly call again together.
    answered: usize,
    /// The number of changes of the denial generations that JavaScript has.
    seen_changes: u32,
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
            policies: Vec::new(),
            calls,
            key_text,
            answers,
            key: String::new(),
            records: Vec::new(),
            answered: 0,
            // Not a real number of changes, so the first crossing passes all generations.
            seen_changes: u32::MAX,
        }
    }

    /// Makes the calls of `calls`. Returns the length of the immediate answers in `answers`.
    pub(crate) fn send(&mut self) -> i32 {
        self.records.clear();
        self.answered = 0;
        // The drop of the guard sends the calls of one crossing together.
        self.post_all(&BatchGuard::default());
        self.hand_over()
    }

    /// Fetches the delivered answers. Returns their length in `answers`.
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

    /// The policies, keys and costs of `calls`, which are one call here.
    pub(crate) fn entries(&self) -> Result<Vec<(&OwnedPolicyRef, String, u64)>> {
        let count = self.calls.last().copied().unwrap_or_default() as usize;
        let mut key_start = 0;
        let entry = |call: [f64; CALL_LENGTH]| {
            let key_end = key_start + call[CallField::KeyLength as usize] as usize;
            let mut key = String::new();
            read_key(self.key_text.get(key_start..key_end).unwrap_or_default(), &mut key)?;
            key_start = key_end;
            let (policy, cost) = (call[CallField::Policy as usize], call[CallField::Cost as usize]);
            Ok((self.policy_ref(policy)?, key, number::cost(cost)?))
        };
        (0..count).map_while(|index| self.call(index)).map(entry).collect()
    }

    fn call(&self, index: usize) -> Option<[f64; CALL_LENGTH]> {
        self.calls.get(index * CALL_LENGTH..)?.first_chunk().copied()
    }

    /// Makes one call with a plain cost. `None` if its answer will be delivered later.
    pub(crate) fn post(&self, call: &BatchCall, key: &str, batch: Option<&BatchGuard>) -> Option<Result<Outcome>> {
        match number::cost(call.cost) {
            Ok(cost) if call.kind == CHECK => self.post_call(call, key, &Call::Plain(cost), batch),
            Ok(cost) => self.post_of(call, key, CheckOptions { cost, ..CheckOptions::default() }, batch),
            Err(error) => Some(Err(error)),
        }
    }

    fn acquire(&self, call: &BatchCall, key: &str, options: &CheckOptions) -> Result<Outcome> {
        let admitted = self.limiter.acquire_at_once(self.policy_ref(call.policy)?, key, options)?;
        Ok(admitted.map_or(Outcome::Nothing, Outcome::Decision))
    }

    /// Makes one call with options. The kind of the call sets `partial`.
    #[inline]
    pub(crate) fn post_of(
        &self,
        call: &BatchCall,
        key: &str,
        options: CheckOptions,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Outcome>> {
        let operation = match call.kind {
            CHECK | TAKE => Call::check(CheckOptions { partial: call.kind == TAKE, ..options }),
            PEEK => Call::peek(options),
            CHARGE => Call::Charge(options.into()),
            ACQUIRE => return Some(self.acquire(call, key, &options)),
            _ => Call::Refund(options.into()),
        };
        self.post_call(call, key, &operation, batch)
    }

    #[inline]
    fn post_call(
        &self,
        call: &BatchCall,
        key: &str,
        operation: &Call,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Outcome>> {
        let policy_ref = match self.policy_ref(call.policy) {
            Ok(policy_ref) => policy_ref,
            Err(error) => return Some(Err(error)),
        };
        Some(self.limiter.post(policy_ref, key, operation, call.ticket, &self.queue, batch)?.map(Outcome::Decision))
    }

    pub(crate) fn policy_ref(&self, number: f64) -> Result<&OwnedPolicyRef> {
        let known = self.policies.get(number as usize).map(|(policy_ref, _)| policy_ref);
        known.ok_or_else(|| Error::new(ErrorKind::PolicyUnknown, "a call names a policy that was not resolved"))
    }

    /// Hands over the outcome of a single call, or nothing yet if its answer will be delivered later.
    pub(crate) fn answer(&mut self, ticket: u64, outcome: Option<Result<Outcome>>) -> i32 {
        self.records.clear();
        self.answered = usize::from(outcome.is_some() && is_call(ticket));
        if let Some(outcome) = outcome {
            self.completions.write(&mut self.records, ticket, outcome);
        }
        self.hand_over()
    }

    /// Copies the records to `answers` and returns their length. The last numbers of the array are the generations of
    /// denials, and the number of calls that should cross together next.
    fn hand_over(&mut self) -> i32 {
        #[allow(
            unsafe_code,
            reason = "only this function writes to the array, and JavaScript reads it after the crossing"
        )]
        let answers = unsafe { self.answers.as_mut() };
        let Some((cohort, answers)) = answers.split_last_mut() else { return Special::TooMany as i32 };
        *cohort = cohort_size(self.answered) as f64;
        let Some(end) = answers.len().checked_sub(DENIAL_GENERATIONS) else { return Special::TooMany as i32 };
        let (answers, generations) = answers.split_at_mut(end);
        self.limiter.copy_denial_generations(&mut self.seen_changes, generations);
        match answers.get_mut(..self.records.len()) {
            Some(answers) => answers.copy_from_slice(&self.records),
            None => return Special::TooMany as i32,
        }
        self.records.len() as i32
    }

    /// The answers that did not fit into the array.
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

/// Calls JavaScript from any thread. Weak, so that an open limiter does not keep a process alive.
pub(crate) type WakeCallback = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// The part of an answer that is not a number. JavaScript fetches it by its number.
pub(crate) enum Attachment {
    Error(Error),
    Hold(Hold),
    Attempts(Vec<Attempt>),
    Overrides(Vec<OverriddenKey>),
}

#[derive(Default)]
struct Attachments {
    by_number: HashMap<u64, Attachment>,
    last: u64,
}

impl Attachments {
    fn store(&mut self, attachment: Attachment) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, attachment);
        self.last
    }

    /// Writes an outcome. A hold becomes its number, and its Decision follows.
    fn write(&mut self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        let (kind, attachment) = match outcome {
            Ok(Outcome::Decision(decision)) => return write_decision(out, ticket, &decision),
            Ok(Outcome::Admission(answer)) => return self.write_admission(out, ticket, *answer),
            Ok(Outcome::Nothing) => return write_nothing(out, ticket),
            Ok(Outcome::Wait(wait)) => return write_wait(out, ticket, wait),
            Ok(Outcome::Hold(hold)) => {
                let decision = hold.decision().clone();
                write_attachment(out, ticket, AnswerKind::Hold, self.store(Attachment::Hold(hold)));
                return write_decision(out, ticket, &decision);
            }
            Ok(Outcome::Attempts(attempts)) => (AnswerKind::Attempts, Attachment::Attempts(attempts)),
            Ok(Outcome::Overrides(overrides)) => (AnswerKind::Overrides, Attachment::Overrides(overrides)),
            Err(error) => (AnswerKind::Error, Attachment::Error(error)),
        };
        write_attachment(out, ticket, kind, self.store(attachment));
    }

    fn write_admission(&mut self, out: &mut Vec<f64>, ticket: u64, mut answer: Admission) {
        let (holds, steps) = (answer.take_holds(), answer.take_steps());
        write_admission_head(out, ticket, holds.len(), &answer);
        for (place, hold) in holds {
            out.extend([place as f64, self.store(Attachment::Hold(hold)) as f64]);
        }
        out.push(steps.len() as f64);
        for AskedStep { is_hold, began, ended, decision } in steps {
            out.extend([f64::from(u8::from(is_hold)), began.as_micros() as f64, ended.as_micros() as f64]);
            write_decision(out, ticket, &decision);
        }
        write_decision(out, ticket, answer.decision());
    }
}

#[derive(Default)]
struct Delivered {
    records: Vec<f64>,
    /// The number of answers to calls in `records`. Answers to tasks do not count.
    answered: usize,
    attachments: Attachments,
    /// True if JavaScript was called and has not fetched yet.
    wake_requested: bool,
}

/// The completion queue of a limiter. The core delivers from any thread, and JavaScript fetches all in one call.
pub(crate) struct NodeCompletions {
    delivered: Mutex<Delivered>,
    wake_callback: WakeCallback,
}

impl NodeCompletions {
    pub(crate) fn new(wake_callback: WakeCallback) -> Self {
        Self { delivered: Mutex::default(), wake_callback }
    }

    /// Writes an outcome that goes back to JavaScript at once.
    pub(crate) fn write(&self, out: &mut Vec<f64>, ticket: u64, outcome: Result<Outcome>) {
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return write_decision(out, ticket, decision);
        }
        self.delivered.lock().attachments.write(out, ticket, outcome);
    }

    /// Takes an attachment out.
    pub(crate) fn take(&self, number: u64) -> Option<Attachment> {
        self.delivered.lock().attachments.by_number.remove(&number)
    }

    /// Notes that the caller is about to collect. Answers until then need no wake-up.
    #[cfg(target_os = "linux")]
    pub(crate) fn expect_collect(&self) {
        self.delivered.lock().wake_requested = true;
    }

    /// Takes all records and leaves the caller's vector, to use its memory again. Returns the number of answered calls.
    pub(crate) fn collect(&self, records: &mut Vec<f64>) -> usize {
        records.clear();
        let mut delivered = self.delivered.lock();
        delivered.wake_requested = false;
        std::mem::swap(&mut delivered.records, records);
        std::mem::take(&mut delivered.answered)
    }
}

impl Wake for NodeCompletions {
    fn wake(&self) {
        let mut delivered = self.delivered.lock();
        if delivered.wake_requested || delivered.records.is_empty() {
            return;
        }
        delivered.wake_requested = true;
        drop(delivered);
        // The call fails when the event loop is being torn down. Then there is no caller left.
        let _ = self.wake_callback.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

impl CompletionQueue for NodeCompletions {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        let mut delivered = self.delivered.lock();
        let Delivered { records, answered, attachments, .. } = &mut *delivered;
        *answered += usize::from(is_call(ticket));
        // By reference, so that the Decision is dropped after the lock.
        if let Ok(Outcome::Decision(decision)) = &outcome {
            return write_decision(records, ticket, decision);
        }
        attachments.write(records, ticket, outcome);
    }
}

/// True if a ticket belongs to a call, not to a task.
pub(crate) const fn is_call(ticket: u64) -> bool {
    ticket < FIRST_TASK_TICKET as u64
}
