//! Questions and answers as numbers: the part that is crossed for every check.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use napi::bindgen_prelude::{Float64Array, Uint16Array};
use tidegate::host::{
    BatchGuard, Call, ChargedUnits, CompletionQueue, HostAsyncLimiter, Outcome, Started, Task, post_begun,
};
use tidegate::{AsyncLimiter, CheckOptions, Decision, Error, ErrorKind, Hold, Result};

use crate::answer_record;
use crate::loop_reader::LoopReader;
use crate::node_completions::NodeCompletions;
use crate::number;
use crate::policy_ref::{OwnedPolicyRef, read_key};

/// Numbers of one call in `calls`: ticket, policy, what to do, cost, units of the key, units charged before.
const CALL_FIELDS: usize = 6;

// What to do.
const CHECK: u8 = 0;
const PEEK: u8 = 1;
const CHARGE: u8 = 2;
const REFUND: u8 = 3;
/// And the number of who answered the check: see `record`.
const SETTLE: u8 = 4;

/// Said instead of a number of answers when they do not fit: `overflow` has them.
const TOO_MANY: i32 = -1;

/// What is asked about a key.
pub(crate) struct BatchCall {
    pub(crate) ticket: u64,
    pub(crate) policy_ref: f64,
    pub(crate) what: u8,
    pub(crate) cost: f64,
    pub(crate) charged: f64,
}

/// An open limiter, and the arrays through which JavaScript talks to it.
pub(crate) struct BatchCodec {
    pub(crate) limiter: AsyncLimiter,
    pub(crate) completions: Arc<NodeCompletions>,
    pub(crate) inbox: Arc<dyn CompletionQueue>,
    calls: Float64Array,
    text: Uint16Array,
    answers: Float64Array,
    pub(crate) policy_refs: Vec<OwnedPolicyRef>,
    pub(crate) tasks: HashMap<u64, Task>,
    pub(crate) holds: HashMap<u64, Hold>,
    key: String,
    records: Vec<f64>,
    /// While the event loop reads what servers say.
    pub(crate) loop_reader: Option<LoopReader>,
}

impl BatchCodec {
    pub(crate) fn new(
        limiter: AsyncLimiter,
        completions: NodeCompletions,
        calls: Float64Array,
        text: Uint16Array,
        answers: Float64Array,
    ) -> Self {
        let completions = Arc::new(completions);
        Self {
            limiter,
            inbox: completions.clone(),
            completions,
            calls,
            text,
            answers,
            policy_refs: Vec::new(),
            tasks: HashMap::new(),
            holds: HashMap::new(),
            key: String::new(),
            records: Vec::new(),
            loop_reader: None,
        }
    }

    /// Hands the records over: how many numbers there are.
    fn hand_over(&mut self) -> i32 {
        if self.records.len() > self.answers.len() {
            return TOO_MANY;
        }
        #[allow(
            unsafe_code,
            reason = "nobody else writes to the array, and JavaScript reads it when this call is over"
        )]
        let answers = unsafe { self.answers.as_mut() };
        answers[..self.records.len()].copy_from_slice(&self.records);
        self.records.len() as i32
    }

    pub(crate) fn policy_ref(&self, number: f64) -> Result<&OwnedPolicyRef> {
        self.policy_refs
            .get(number as usize)
            .ok_or_else(|| Error::new(ErrorKind::PolicyUnknown, "a policy was named that nobody resolved"))
    }

    /// Makes one call; `None` when the answer will be delivered.
    fn ask(&mut self, ask: [f64; CALL_FIELDS], key_start: usize, batch: &BatchGuard) -> Option<Result<Outcome>> {
        let [ticket, policy_ref, what, cost, units, charged] = ask;
        let text = self.text.get(key_start..key_start + units as usize).unwrap_or_default();
        if let Err(error) = read_key(text, &mut self.key) {
            return Some(Err(error));
        }
        self.post(
            &BatchCall { ticket: ticket as u64, policy_ref, what: what as u8, cost, charged },
            &self.key,
            Some(batch),
        )
    }

    pub(crate) fn post(&self, call: &BatchCall, key: &str, batch: Option<&BatchGuard>) -> Option<Result<Outcome>> {
        let BatchCall { ticket, policy_ref, what, .. } = *call;
        let made = self.policy_ref(policy_ref).and_then(|policy_ref| Ok((policy_ref, number::cost(call.cost)?)));
        let (policy_ref, cost) = match made {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        let call = match what {
            CHECK => Call::Check(CheckOptions { cost, meta: None }),
            PEEK => Call::Peek(cost),
            CHARGE => Call::Charge(cost),
            REFUND => Call::Refund(cost),
            _ => {
                let charged =
                    ChargedUnits { units: call.charged as u64, source: answer_record::source_of(what - SETTLE) };
                let done = self.limiter.post_settle(policy_ref, key, charged, cost, ticket, &self.inbox, batch)?;
                return Some(done.map(|()| Outcome::Nothing));
            }
        };
        Some(self.limiter.post(policy_ref, key, &call, ticket, &self.inbox, batch)?.map(Outcome::Decision))
    }

    pub(crate) fn answer(&mut self, ticket: u64, outcome: Result<Outcome>) -> i32 {
        self.records.clear();
        self.completions.write(&mut self.records, ticket, outcome);
        self.hand_over()
    }

    /// Begins what may take its time; 0 when the answer will be delivered.
    pub(crate) fn begin<F>(&mut self, ticket: f64, task: impl FnOnce(&AsyncLimiter) -> Result<F>) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let ticket = ticket as u64;
        let posted = task(&self.limiter).and_then(|task| post_begun(ticket, &self.inbox, task));
        match posted {
            Ok(Started::Waits(task)) => {
                self.tasks.insert(ticket, task);
                0
            }
            Ok(Started::Done(outcome)) => self.answer(ticket, outcome),
            Err(error) => self.answer(ticket, Err(error)),
        }
    }

    /// Begins something about one policy and key.
    pub(crate) fn about<F>(
        &mut self,
        ticket: f64,
        policy_ref: u32,
        key: String,
        task: impl FnOnce(AsyncLimiter, OwnedPolicyRef, String) -> F,
    ) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let policy_ref = self.policy_ref(f64::from(policy_ref)).cloned();
        self.begin(ticket, |limiter| Ok(task(limiter.clone(), policy_ref?, key)))
    }

    /// Makes as many calls of `calls` as its last number says. What is answered at once is in `answers` when this returns: so many
    /// numbers, or -1 when they are in `overflow`.
    pub(crate) fn send(&mut self) -> i32 {
        self.post_all(&BatchGuard::default());
        self.hand_over()
    }

    fn post_all(&mut self, batch: &BatchGuard) {
        self.records.clear();
        let count = self.calls.last().copied().unwrap_or_default() as usize;
        let mut key_start = 0;
        for index in 0..count {
            let Some(ask) =
                self.calls.get(index * CALL_FIELDS..).and_then(|calls| calls.first_chunk::<CALL_FIELDS>()).copied()
            else {
                break;
            };
            let answer = self.ask(ask, key_start, batch);
            key_start += ask[4] as usize;
            match answer {
                None => {}
                Some(Ok(Outcome::Decision(decision))) => self.decision(ask[0], &decision),
                Some(outcome) => self.completions.write(&mut self.records, ask[0] as u64, outcome),
            }
        }
    }

    fn decision(&mut self, ticket: f64, decision: &Decision) {
        answer_record::decision(&mut self.records, ticket as u64, decision);
    }

    /// Fetches what was delivered, in the same way.
    pub(crate) fn collect(&mut self) -> i32 {
        self.completions.collect(&mut self.records);
        self.hand_over()
    }

    /// The answers that did not fit.
    pub(crate) fn overflow(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.records)
    }
}
