//! The way into a limiter and back: many questions in one call, many answers in one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use napi::bindgen_prelude::{ClassInstance, Either, Float64Array, Uint8Array, Uint16Array};
use napi_derive::napi;
use tidegate::{
    AsyncLimiter, Call, CheckOptions, Decision, Error, ErrorKind, Hold, Inbox, Outcome, Posted, Result, Task,
};

use crate::failure::Failure;
use crate::http::{Announcement, announcement};
use crate::inbox::{Letters, Parcel};
use crate::number;
use crate::policy::Policy;
use crate::record;
use crate::subject::{Subject, holds, read_key, repeats_denials};

/// Numbers of one question in `asks`: ticket, policy, what to do, cost, units of the key, units charged before.
const ASK: usize = 6;

// What to do.
const CHECK: u8 = 0;
const PEEK: u8 = 1;
const CHARGE: u8 = 2;
const REFUND: u8 = 3;
const SETTLE: u8 = 4;

/// Said instead of a number of answers when they do not fit: `overflow` has them.
const TOO_MANY: i32 = -1;

/// A policy as calls name it from now on.
#[napi(object)]
pub struct Resolved {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Whether a denial may be repeated without asking.
    pub repeats: bool,
    /// Whether it has units that are held and given back.
    pub holds: bool,
    /// How HTTP announces it, if it does.
    pub announcement: Option<Announcement>,
}

/// One remembered attempt.
#[napi(object)]
pub struct Remembered {
    /// When, in milliseconds since 1970.
    pub at: f64,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: f64,
    /// What the caller said of it.
    pub meta: Option<Uint8Array>,
}

/// An open limiter.
#[napi]
pub struct Channel {
    limiter: AsyncLimiter,
    letters: Arc<Letters>,
    inbox: Arc<dyn Inbox>,
    asks: Float64Array,
    text: Uint16Array,
    answers: Float64Array,
    subjects: Vec<Subject>,
    tasks: HashMap<u64, Task>,
    holds: HashMap<u64, Hold>,
    key: String,
    records: Vec<f64>,
}

impl Channel {
    pub(crate) fn new(
        limiter: AsyncLimiter,
        letters: Letters,
        asks: Float64Array,
        text: Uint16Array,
        answers: Float64Array,
    ) -> Self {
        let letters = Arc::new(letters);
        Self {
            limiter,
            inbox: letters.clone(),
            letters,
            asks,
            text,
            answers,
            subjects: Vec::new(),
            tasks: HashMap::new(),
            holds: HashMap::new(),
            key: String::new(),
            records: Vec::new(),
        }
    }

    /// Hands the records over: how many numbers there are.
    fn hand_over(&mut self) -> i32 {
        if self.records.len() > self.answers.len() {
            return TOO_MANY;
        }
        #[allow(unsafe_code, reason = "nobody else writes to the array, and JavaScript reads it when this call is over")]
        let answers = unsafe { self.answers.as_mut() };
        answers[..self.records.len()].copy_from_slice(&self.records);
        self.records.len() as i32
    }

    fn subject(&self, number: f64) -> Result<&Subject> {
        self.subjects
            .get(number as usize)
            .ok_or_else(|| Error::new(ErrorKind::PolicyUnknown, "a policy was named that nobody resolved"))
    }

    /// Asks one question; `None` when the answer will be delivered.
    fn ask(&mut self, ask: [f64; ASK], begins: usize) -> Option<Result<Outcome>> {
        let [ticket, subject, what, cost, units, charged] = ask;
        let text = self.text.get(begins..begins + units as usize).unwrap_or_default();
        let call = match read_key(text, &mut self.key).and_then(|()| call(what as u8, cost, charged)) {
            Ok(Some(call)) => call,
            Ok(None) => return Some(Ok(Outcome::Nothing)),
            Err(error) => return Some(Err(error)),
        };
        let subject = match self.subject(subject) {
            Ok(subject) => subject,
            Err(error) => return Some(Err(error)),
        };
        let answer = self.limiter.post(subject, &self.key, &call, ticket as u64, &self.inbox)?;
        Some(answer.map(Outcome::Decision))
    }

    fn answer(&mut self, ticket: u64, outcome: Result<Outcome>) -> i32 {
        self.records.clear();
        self.letters.write(&mut self.records, ticket, outcome);
        self.hand_over()
    }

    /// Begins what may take its time; 0 when the answer will be delivered.
    fn begin<F>(&mut self, ticket: f64, task: impl FnOnce(&AsyncLimiter) -> Result<F>) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let ticket = ticket as u64;
        let posted = task(&self.limiter).and_then(|task| AsyncLimiter::post_begun(ticket, &self.inbox, task));
        match posted {
            Ok(Posted::Waits(task)) => {
                self.tasks.insert(ticket, task);
                0
            }
            Ok(Posted::Done(outcome)) => self.answer(ticket, outcome),
            Err(error) => self.answer(ticket, Err(error)),
        }
    }

    /// Begins something about one policy and key.
    fn about<F>(
        &mut self,
        ticket: f64,
        subject: u32,
        key: String,
        task: impl FnOnce(AsyncLimiter, Subject, String) -> F,
    ) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let subject = self.subject(f64::from(subject)).cloned();
        self.begin(ticket, |limiter| Ok(task(limiter.clone(), subject?, key)))
    }
}

fn call(what: u8, cost: f64, charged: f64) -> Result<Option<Call>> {
    let cost = number::cost(cost)?;
    Ok(Some(match what {
        CHECK => Call::Check(CheckOptions { cost, meta: None }),
        PEEK => Call::Peek(cost),
        CHARGE => Call::Charge(cost),
        REFUND => Call::Refund(cost),
        SETTLE => return Call::settling(number::cost(charged)?, cost),
        _ => return Err(Error::new(ErrorKind::ConfigInvalid, "there is no such call")),
    }))
}

#[napi]
impl Channel {
    /// Takes a name or a notation, or a policy, into the list that calls refer to.
    #[napi(catch_unwind)]
    pub fn resolve(&mut self, policy: Either<String, ClassInstance<'_, Policy>>) -> Either<Resolved, Failure> {
        let subject = match policy {
            Either::A(text) => Subject::Text(text),
            Either::B(policy) => Subject::Policy(policy.policy.clone()),
        };
        match self.limiter.policy(&subject) {
            Ok(policy) => {
                self.subjects.push(subject);
                Either::A(Resolved {
                    number: (self.subjects.len() - 1) as u32,
                    name: policy.name().to_owned(),
                    repeats: repeats_denials(&policy),
                    holds: holds(&policy),
                    announcement: announcement(&policy),
                })
            }
            Err(error) => Either::B(error.into()),
        }
    }

    /// Forgets the list.
    #[napi(catch_unwind)]
    pub fn forget(&mut self) {
        self.subjects.clear();
    }

    /// Asks the first so many questions of `asks`. What is answered at once is in `answers` when this returns: so many
    /// numbers, or -1 when they are in `overflow`.
    #[napi(catch_unwind)]
    pub fn send(&mut self, count: u32) -> i32 {
        self.records.clear();
        let mut begins = 0;
        for index in 0..count as usize {
            let Some(ask) = self.asks.get(index * ASK..).and_then(|asks| asks.first_chunk::<ASK>()).copied() else {
                break;
            };
            let answer = self.ask(ask, begins);
            begins += ask[4] as usize;
            match answer {
                None => {}
                Some(Ok(Outcome::Decision(decision))) => self.decision(ask[0], &decision),
                Some(outcome) => self.letters.write(&mut self.records, ask[0] as u64, outcome),
            }
        }
        self.hand_over()
    }

    fn decision(&mut self, ticket: f64, decision: &Decision) {
        record::decision(&mut self.records, ticket as u64, decision);
    }

    /// Fetches what was delivered, in the same way.
    #[napi(catch_unwind)]
    pub fn collect(&mut self) -> i32 {
        self.letters.collect(&mut self.records);
        self.hand_over()
    }

    /// The answers that did not fit.
    #[napi(catch_unwind)]
    pub fn overflow(&mut self) -> Float64Array {
        Float64Array::new(std::mem::take(&mut self.records))
    }

    /// Takes the failure of that number.
    #[napi(catch_unwind)]
    pub fn failure(&self, number: f64) -> Option<Failure> {
        match self.letters.take(number as u64)? {
            Parcel::Failure(error) => Some(error.into()),
            Parcel::Hold(_) | Parcel::Attempts(_) => None,
        }
    }

    /// Lets go of what nobody waits for any more; a hold is given back.
    #[napi(catch_unwind)]
    pub fn discard(&self, number: f64) {
        drop(self.letters.take(number as u64));
    }

    /// Takes the attempts of that number.
    #[napi(catch_unwind)]
    pub fn attempts(&self, number: f64) -> Vec<Remembered> {
        let Some(Parcel::Attempts(attempts)) = self.letters.take(number as u64) else { return Vec::new() };
        let remembered = attempts.into_iter().map(|attempt| Remembered {
            at: attempt.at as f64 / 1_000.0,
            allowed: attempt.allowed,
            cost: attempt.cost as f64,
            meta: attempt.meta.map(Uint8Array::new),
        });
        remembered.collect()
    }

    /// Asks what comes with metadata.
    #[napi(catch_unwind)]
    pub fn note(&mut self, ticket: f64, subject: u32, key: String, cost: f64, meta: Uint8Array) -> i32 {
        let asked = number::cost(cost).and_then(|cost| {
            let call = Call::Check(CheckOptions { cost, meta: Some(meta.to_vec()) });
            let subject = self.subject(f64::from(subject))?;
            self.limiter.post(subject, &key, &call, ticket as u64, &self.inbox).transpose()
        });
        match asked.transpose() {
            None => 0,
            Some(answer) => self.answer(ticket as u64, answer.map(Outcome::Decision)),
        }
    }

    /// Asks with a key too long for `text`.
    #[napi(catch_unwind)]
    pub fn long(&mut self, ticket: f64, subject: u32, key: String, what: u8, cost: f64, charged: f64) -> i32 {
        let asked = call(what, cost, charged).and_then(|call| {
            let Some(call) = call else { return Ok(Some(Outcome::Nothing)) };
            let answer = self.limiter.post(self.subject(f64::from(subject))?, &key, &call, ticket as u64, &self.inbox);
            Ok(answer.transpose()?.map(Outcome::Decision))
        });
        match asked.transpose() {
            None => 0,
            Some(answer) => self.answer(ticket as u64, answer),
        }
    }

    /// Checks several, all or nothing.
    #[napi(catch_unwind)]
    pub fn check_all(&mut self, ticket: f64, subjects: Vec<u32>, keys: Vec<String>, costs: Vec<f64>) -> i32 {
        let entries = subjects.iter().zip(keys).zip(costs).map(|((subject, key), cost)| {
            Ok((self.subject(f64::from(*subject))?.clone(), key, number::cost(cost)?))
        });
        let entries: Result<Vec<(Subject, String, u64)>> = entries.collect();
        self.begin(ticket, |limiter| {
            let (limiter, entries) = (limiter.clone(), entries?);
            Ok(async move { limiter.check_all(entries).await.map(Outcome::Decision) })
        })
    }

    /// Waits until it is admitted; without a timeout as long as it takes.
    #[napi(catch_unwind)]
    pub fn acquire(&mut self, ticket: f64, subject: u32, key: String, cost: f64, timeout: Option<f64>) -> i32 {
        let cost = number::cost(cost);
        let timeout = timeout.map(|timeout| number::milliseconds("timeoutMs", timeout)).transpose();
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.acquire(&subject, &key, cost?, timeout?).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a `concurrency` limit.
    #[napi(catch_unwind)]
    pub fn hold(&mut self, ticket: f64, subject: u32, key: String, cost: f64) -> i32 {
        let cost = number::cost(cost);
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            Ok(match limiter.hold(&subject, &key, cost?).await? {
                Ok(hold) => Outcome::Hold(hold),
                Err(denied) => Outcome::Decision(denied),
            })
        })
    }

    /// Keeps the hold of that number until it is given back.
    #[napi(catch_unwind)]
    pub fn keep(&mut self, number: f64) {
        if let Some(Parcel::Hold(hold)) = self.letters.take(number as u64) {
            self.holds.insert(number as u64, hold);
        }
    }

    /// Gives a hold back.
    #[napi(catch_unwind)]
    pub fn release(&mut self, ticket: f64, number: f64) -> i32 {
        let hold = self.holds.remove(&(number as u64));
        self.begin(ticket, |_| {
            Ok(async move {
                if let Some(hold) = hold {
                    hold.release().await;
                }
                Ok(Outcome::Nothing)
            })
        })
    }

    /// Denies a key for that many milliseconds.
    #[napi(catch_unwind)]
    pub fn block(&mut self, ticket: f64, subject: u32, key: String, length: f64) -> i32 {
        let length = number::milliseconds("the length of a block", length);
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.block(&subject, &key, length?).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[napi(catch_unwind)]
    pub fn unblock(&mut self, ticket: f64, subject: u32, key: String) -> i32 {
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.unblock(&subject, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets a key's usage.
    #[napi(catch_unwind)]
    pub fn clear(&mut self, ticket: f64, subject: u32, key: String) -> i32 {
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.clear(&subject, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts.
    #[napi(catch_unwind)]
    pub fn journal(&mut self, ticket: f64, subject: u32, key: String) -> i32 {
        self.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.journal(&subject, &key).await.map(Outcome::Attempts)
        })
    }

    /// Whether the store answers.
    #[napi(catch_unwind)]
    pub fn ping(&mut self, ticket: f64) -> i32 {
        self.begin(ticket, |limiter| {
            let limiter = limiter.clone();
            Ok(async move { limiter.ping().await.map(|()| Outcome::Nothing) })
        })
    }

    /// Reads the policy file again, on another thread: a disk may be slow.
    #[napi(catch_unwind)]
    pub fn reload(&mut self, ticket: f64) -> i32 {
        let limiter = self.limiter.clone();
        let task = async move { limiter.reload().map(|()| Outcome::Nothing) };
        match AsyncLimiter::post_task(ticket as u64, &self.inbox, task) {
            Ok(task) => {
                self.tasks.insert(ticket as u64, task);
                0
            }
            Err(error) => self.answer(ticket as u64, Err(error)),
        }
    }

    /// Gives up what was begun under that ticket, or forgets that it is done.
    #[napi(catch_unwind)]
    pub fn cancel(&mut self, ticket: f64) {
        if let Some(task) = self.tasks.remove(&(ticket as u64)) {
            task.cancel();
        }
    }

    /// Ends the limiter. Holds are given back; what waits for the store is answered.
    #[napi(catch_unwind)]
    pub fn close(&mut self) {
        self.holds.clear();
        self.limiter.close();
    }
}
