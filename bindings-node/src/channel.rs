//! What JavaScript calls of an open limiter.

use std::cell::RefCell;
use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, Either, Float64Array, Function, FunctionRef, Uint8Array, Uint16Array};
use napi_derive::napi;
use tidegate::{AsyncLimiter, Call, CheckOptions, Outcome, Result};

use crate::counters::Counters;
use crate::exchange::{Exchange, Question};
use crate::failure::Failure;
use crate::http::{Announcement, announcement};
use crate::inbox::{Letters, Parcel};
use crate::number;
use crate::policy::Policy;
use crate::subject::{Subject, holds};
use crate::watching::Watching;

/// A policy as calls name it from now on.
#[napi(object)]
pub struct Resolved {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
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
    exchange: Rc<RefCell<Exchange>>,
}

impl Channel {
    pub(crate) fn new(
        limiter: AsyncLimiter,
        letters: Letters,
        asks: Float64Array,
        text: Uint16Array,
        answers: Float64Array,
    ) -> Self {
        Self { exchange: Rc::new(RefCell::new(Exchange::new(limiter, letters, asks, text, answers))) }
    }

    /// Has the event loop read for the limiter, where it can.
    pub(crate) fn watch(&self, env: &Env, bell: FunctionRef<i32, ()>) {
        let watching = Watching::start(&self.exchange.borrow().limiter, &self.exchange, env, bell);
        self.exchange.borrow_mut().watching = watching;
    }
}

#[napi]
impl Channel {
    /// Takes a name or a notation, or a policy, into the list that calls refer to.
    #[napi(catch_unwind)]
    pub fn resolve(&self, policy: Either<String, ClassInstance<'_, Policy>>) -> Either<Resolved, Failure> {
        let exchange = &mut *self.exchange.borrow_mut();
        let subject = match policy {
            Either::A(text) => Subject::Text(text),
            Either::B(policy) => Subject::Policy(policy.policy.clone()),
        };
        match exchange.limiter.policy(&subject) {
            Ok(policy) => {
                exchange.subjects.push(subject);
                Either::A(Resolved {
                    number: (exchange.subjects.len() - 1) as u32,
                    name: policy.name().to_owned(),
                    holds: holds(&policy),
                    announcement: announcement(&policy),
                })
            }
            Err(error) => Either::B(error.into()),
        }
    }

    /// The policy that a call would apply.
    #[napi(catch_unwind)]
    pub fn policy(&self, subject: u32) -> Either<Policy, Failure> {
        let exchange = &*self.exchange.borrow();
        match exchange.subject(f64::from(subject)).and_then(|subject| exchange.limiter.policy(subject)) {
            Ok(policy) => Either::A(Policy { policy }),
            Err(error) => Either::B(error.into()),
        }
    }

    /// How many wait for a key in `acquire`.
    #[napi(catch_unwind)]
    pub fn waiting(&self, subject: u32, key: String) -> u32 {
        let exchange = &*self.exchange.borrow();
        let waiting = exchange.subject(f64::from(subject)).map_or(0, |subject| exchange.limiter.waiting(subject, &key));
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// Gives another share of the keys to the new store of a rollout.
    #[napi(catch_unwind)]
    pub fn set_rollout(&self, percent: f64) -> Option<Failure> {
        self.exchange.borrow().limiter.set_rollout(percent).err().map(Failure::from)
    }

    /// What was counted.
    #[napi(catch_unwind)]
    pub fn counters(&self) -> Counters {
        self.exchange.borrow().limiter.counters().into()
    }

    /// Forgets the list.
    #[napi(catch_unwind)]
    pub fn forget(&self) {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.subjects.clear();
    }

    /// The call that asks what stands in `asks`: what is answered at once is in `answers` when it returns. So many numbers,
    /// or -1 when they are in `overflow`. A function of its own, since a method of an object costs four times as much.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn sender<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let exchange = Rc::clone(&self.exchange);
        env.create_function_from_closure("send", move |_| Ok(exchange.borrow_mut().send()))
    }

    /// The call that fetches what was delivered, in the same way.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn collector<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let exchange = Rc::clone(&self.exchange);
        env.create_function_from_closure("collect", move |_| Ok(exchange.borrow_mut().collect()))
    }

    /// The answers that did not fit.
    #[napi(catch_unwind)]
    pub fn overflow(&self) -> Float64Array {
        Float64Array::new(self.exchange.borrow_mut().overflow())
    }

    /// Takes the failure of that number.
    #[napi(catch_unwind)]
    pub fn failure(&self, number: f64) -> Option<Failure> {
        let exchange = self.exchange.borrow();
        match exchange.letters.take(number as u64)? {
            Parcel::Failure(error) => Some(error.into()),
            Parcel::Hold(_) | Parcel::Attempts(_) => None,
        }
    }

    /// Lets go of what nobody waits for any more; a hold is given back.
    #[napi(catch_unwind)]
    pub fn discard(&self, number: f64) {
        let exchange = self.exchange.borrow();
        drop(exchange.letters.take(number as u64));
    }

    /// Takes the attempts of that number.
    #[napi(catch_unwind)]
    pub fn attempts(&self, number: f64) -> Vec<Remembered> {
        let exchange = self.exchange.borrow();
        let Some(Parcel::Attempts(attempts)) = exchange.letters.take(number as u64) else { return Vec::new() };
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
    pub fn note(&self, ticket: f64, subject: u32, key: String, cost: f64, meta: Uint8Array) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let asked = number::cost(cost).and_then(|cost| {
            let call = Call::Check(CheckOptions { cost, meta: Some(meta.to_vec()) });
            let subject = exchange.subject(f64::from(subject))?;
            exchange.limiter.post(subject, &key, &call, ticket as u64, &exchange.inbox).transpose()
        });
        match asked.transpose() {
            None => 0,
            Some(answer) => exchange.answer(ticket as u64, answer.map(Outcome::Decision)),
        }
    }

    /// Asks with a key too long for `text`.
    #[napi(catch_unwind)]
    pub fn long(&self, ticket: f64, subject: u32, key: String, what: u8, cost: f64, charged: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let question = Question { ticket: ticket as u64, subject: f64::from(subject), what, cost, charged };
        match exchange.post(&question, &key) {
            None => 0,
            Some(outcome) => exchange.answer(question.ticket, outcome),
        }
    }

    /// Checks several, all or nothing.
    #[napi(catch_unwind)]
    pub fn check_all(&self, ticket: f64, subjects: Vec<u32>, keys: Vec<String>, costs: Vec<f64>) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let entries = subjects.iter().zip(keys).zip(costs).map(|((subject, key), cost)| {
            Ok((exchange.subject(f64::from(*subject))?.clone(), key, number::cost(cost)?))
        });
        let entries: Result<Vec<(Subject, String, u64)>> = entries.collect();
        exchange.begin(ticket, |limiter| {
            let (limiter, entries) = (limiter.clone(), entries?);
            Ok(async move { limiter.check_all(entries).await.map(Outcome::Decision) })
        })
    }

    /// Waits until it is admitted; without a timeout as long as it takes.
    #[napi(catch_unwind)]
    pub fn acquire(&self, ticket: f64, subject: u32, key: String, cost: f64, timeout: Option<f64>) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let cost = number::cost(cost);
        let timeout = timeout.map(|timeout| number::milliseconds("timeoutMs", timeout)).transpose();
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.acquire(&subject, &key, cost?, timeout?).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a `concurrency` limit.
    #[napi(catch_unwind)]
    pub fn hold(&self, ticket: f64, subject: u32, key: String, cost: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let cost = number::cost(cost);
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            Ok(match limiter.hold(&subject, &key, cost?).await? {
                Ok(hold) => Outcome::Hold(hold),
                Err(denied) => Outcome::Decision(denied),
            })
        })
    }

    /// Keeps the hold of that number until it is given back.
    #[napi(catch_unwind)]
    pub fn keep(&self, number: f64) {
        let exchange = &mut *self.exchange.borrow_mut();
        if let Some(Parcel::Hold(hold)) = exchange.letters.take(number as u64) {
            exchange.holds.insert(number as u64, hold);
        }
    }

    /// Gives a hold back.
    #[napi(catch_unwind)]
    pub fn release(&self, ticket: f64, number: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let hold = exchange.holds.remove(&(number as u64));
        exchange.begin(ticket, |_| {
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
    pub fn block(&self, ticket: f64, subject: u32, key: String, length: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let length = number::milliseconds("the length of a block", length);
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.block(&subject, &key, length?).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[napi(catch_unwind)]
    pub fn unblock(&self, ticket: f64, subject: u32, key: String) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.unblock(&subject, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets a key's usage.
    #[napi(catch_unwind)]
    pub fn clear(&self, ticket: f64, subject: u32, key: String) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.clear(&subject, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts.
    #[napi(catch_unwind)]
    pub fn journal(&self, ticket: f64, subject: u32, key: String) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.about(ticket, subject, key, |limiter, subject, key| async move {
            limiter.journal(&subject, &key).await.map(Outcome::Attempts)
        })
    }

    /// Whether the store answers.
    #[napi(catch_unwind)]
    pub fn ping(&self, ticket: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.begin(ticket, |limiter| {
            let limiter = limiter.clone();
            Ok(async move { limiter.ping().await.map(|()| Outcome::Nothing) })
        })
    }

    /// Reads the policy file again, on another thread: a disk may be slow.
    #[napi(catch_unwind)]
    pub fn reload(&self, ticket: f64) -> i32 {
        let exchange = &mut *self.exchange.borrow_mut();
        let limiter = exchange.limiter.clone();
        let task = async move { limiter.reload().map(|()| Outcome::Nothing) };
        match AsyncLimiter::post_task(ticket as u64, &exchange.inbox, task) {
            Ok(task) => {
                exchange.tasks.insert(ticket as u64, task);
                0
            }
            Err(error) => exchange.answer(ticket as u64, Err(error)),
        }
    }

    /// Gives up what was begun under that ticket, or forgets that it is done.
    #[napi(catch_unwind)]
    pub fn cancel(&self, ticket: f64) {
        let exchange = &mut *self.exchange.borrow_mut();
        if let Some(task) = exchange.tasks.remove(&(ticket as u64)) {
            task.cancel();
        }
    }

    /// Ends the limiter. Holds are given back; what waits for the store is answered.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.holds.clear();
        exchange.watching = None;
        exchange.limiter.close();
    }
}
