//! What JavaScript calls of an open limiter.

use std::cell::RefCell;
use std::rc::Rc;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, Either, Float64Array, Function, FunctionRef, Uint8Array, Uint16Array};
use napi_derive::napi;
use tidegate::host::{Call, HostAsyncLimiter, Outcome, post_task};
use tidegate::{AsyncLimiter, CheckOptions, HoldAnswer, Result};

use crate::batch_codec::{BatchCall, BatchCodec};
use crate::counters::Counters;
use crate::failure::Failure;
use crate::http::{Announcement, announcement};
use crate::loop_reader::LoopReader;
use crate::node_completions::{Attachment, NodeCompletions};
use crate::number;
use crate::policy::Policy;
use crate::policy_ref::{OwnedPolicyRef, holds};

/// A policy as calls name it from now on.
#[napi(object)]
pub struct ResolvedPolicy {
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
pub struct Attempt {
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
pub struct NativeLimiter {
    codec: Rc<RefCell<BatchCodec>>,
}

impl NativeLimiter {
    pub(crate) fn new(
        limiter: AsyncLimiter,
        completions: NodeCompletions,
        calls: Float64Array,
        text: Uint16Array,
        answers: Float64Array,
    ) -> Self {
        Self { codec: Rc::new(RefCell::new(BatchCodec::new(limiter, completions, calls, text, answers))) }
    }

    /// Has the event loop read for the limiter, where it can.
    pub(crate) fn watch(&self, env: &Env, wake_callback: FunctionRef<i32, ()>) {
        let loop_reader = LoopReader::start(&self.codec.borrow().limiter, &self.codec, env, wake_callback);
        self.codec.borrow_mut().loop_reader = loop_reader;
    }
}

#[napi]
impl NativeLimiter {
    /// Takes a name or a notation, or a policy, into the list that calls refer to.
    #[napi(catch_unwind)]
    pub fn resolve(&self, policy: Either<String, ClassInstance<'_, Policy>>) -> Either<ResolvedPolicy, Failure> {
        let codec = &mut *self.codec.borrow_mut();
        let policy_ref = match policy {
            Either::A(text) => OwnedPolicyRef::Text(text),
            Either::B(policy) => OwnedPolicyRef::Policy(policy.policy.clone()),
        };
        match codec.limiter.policy(&policy_ref) {
            Ok(policy) => {
                codec.policy_refs.push(policy_ref);
                Either::A(ResolvedPolicy {
                    number: (codec.policy_refs.len() - 1) as u32,
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
    pub fn policy(&self, policy_ref: u32) -> Either<Policy, Failure> {
        let codec = &*self.codec.borrow();
        match codec.policy_ref(f64::from(policy_ref)).and_then(|policy_ref| codec.limiter.policy(policy_ref)) {
            Ok(policy) => Either::A(Policy { policy }),
            Err(error) => Either::B(error.into()),
        }
    }

    /// How many wait for a key in `acquire`.
    #[napi(catch_unwind)]
    pub fn waiting(&self, policy_ref: u32, key: String) -> u32 {
        let codec = &*self.codec.borrow();
        let waiting =
            codec.policy_ref(f64::from(policy_ref)).map_or(0, |policy_ref| codec.limiter.waiting(policy_ref, &key));
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// Gives another share of the keys to the new store of a rollout.
    #[napi(catch_unwind)]
    pub fn set_rollout(&self, percent: f64) -> Option<Failure> {
        self.codec.borrow().limiter.set_rollout(percent).err().map(Failure::from)
    }

    /// What was counted.
    #[napi(catch_unwind)]
    pub fn counters(&self) -> Counters {
        self.codec.borrow().limiter.counters().into()
    }

    /// Forgets the list.
    #[napi(catch_unwind)]
    pub fn forget(&self) {
        let codec = &mut *self.codec.borrow_mut();
        codec.policy_refs.clear();
    }

    /// The function that makes the calls that stand in `calls`: what is answered at once is in `answers` when it returns. So many numbers,
    /// or -1 when they are in `overflow`. A function of its own, since a method of an object costs four times as much.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn sender<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let codec = Rc::clone(&self.codec);
        env.create_function_from_closure("send", move |_| Ok(codec.borrow_mut().send()))
    }

    /// The call that fetches what was delivered, in the same way.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn collector<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let codec = Rc::clone(&self.codec);
        env.create_function_from_closure("collect", move |_| Ok(codec.borrow_mut().collect()))
    }

    /// The answers that did not fit.
    #[napi(catch_unwind)]
    pub fn overflow(&self) -> Float64Array {
        Float64Array::new(self.codec.borrow_mut().overflow())
    }

    /// Takes the failure of that number.
    #[napi(catch_unwind)]
    pub fn failure(&self, number: f64) -> Option<Failure> {
        let codec = self.codec.borrow();
        match codec.completions.take(number as u64)? {
            Attachment::Failure(error) => Some(error.into()),
            Attachment::Hold(_) | Attachment::Attempts(_) => None,
        }
    }

    /// Lets go of what nobody waits for any more; a hold is given back.
    #[napi(catch_unwind)]
    pub fn discard(&self, number: f64) {
        let codec = self.codec.borrow();
        drop(codec.completions.take(number as u64));
    }

    /// Takes the attempts of that number.
    #[napi(catch_unwind)]
    pub fn attempts(&self, number: f64) -> Vec<Attempt> {
        let codec = self.codec.borrow();
        let Some(Attachment::Attempts(attempts)) = codec.completions.take(number as u64) else { return Vec::new() };
        let remembered = attempts.into_iter().map(|attempt| Attempt {
            at: attempt.at as f64 / 1_000.0,
            allowed: attempt.allowed,
            cost: attempt.cost as f64,
            meta: attempt.meta.map(Uint8Array::new),
        });
        remembered.collect()
    }

    /// Asks what comes with metadata.
    #[napi(catch_unwind)]
    pub fn note(&self, ticket: f64, policy_ref: u32, key: String, cost: f64, meta: Uint8Array) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let asked = number::cost(cost).and_then(|cost| {
            let call = Call::Check(CheckOptions { cost, meta: Some(meta.to_vec()) });
            let policy_ref = codec.policy_ref(f64::from(policy_ref))?;
            codec.limiter.post(policy_ref, &key, &call, ticket as u64, &codec.inbox, None).transpose()
        });
        match asked.transpose() {
            None => 0,
            Some(answer) => codec.answer(ticket as u64, answer.map(Outcome::Decision)),
        }
    }

    /// Asks with a key too long for `text`.
    #[napi(catch_unwind)]
    pub fn long(&self, ticket: f64, policy_ref: u32, key: String, what: u8, cost: f64, charged: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let call = BatchCall { ticket: ticket as u64, policy_ref: f64::from(policy_ref), what, cost, charged };
        match codec.post(&call, &key, None) {
            None => 0,
            Some(outcome) => codec.answer(call.ticket, outcome),
        }
    }

    /// Checks several, all or nothing.
    #[napi(catch_unwind)]
    pub fn check_all(&self, ticket: f64, policy_refs: Vec<u32>, keys: Vec<String>, costs: Vec<f64>) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let entries = policy_refs.iter().zip(keys).zip(costs).map(|((policy_ref, key), cost)| {
            Ok((codec.policy_ref(f64::from(*policy_ref))?.clone(), key, number::cost(cost)?))
        });
        let entries: Result<Vec<(OwnedPolicyRef, String, u64)>> = entries.collect();
        codec.begin(ticket, |limiter| {
            let (limiter, entries) = (limiter.clone(), entries?);
            Ok(async move { limiter.check_all(entries).await.map(Outcome::Decision) })
        })
    }

    /// Waits until it is admitted; without a timeout as long as it takes.
    #[napi(catch_unwind)]
    pub fn acquire(&self, ticket: f64, policy_ref: u32, key: String, cost: f64, timeout: Option<f64>) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let cost = number::cost(cost);
        let timeout = timeout.map(|timeout| number::milliseconds("timeoutMs", timeout)).transpose();
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            limiter.acquire(&policy_ref, &key, cost?, timeout?).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a `concurrency` limit.
    #[napi(catch_unwind)]
    pub fn hold(&self, ticket: f64, policy_ref: u32, key: String, cost: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let cost = number::cost(cost);
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            Ok(match limiter.hold(&policy_ref, &key, cost?).await? {
                HoldAnswer::Held(hold) => Outcome::Hold(hold),
                HoldAnswer::Denied(denied) => Outcome::Decision(denied),
            })
        })
    }

    /// Keeps the hold of that number until it is given back.
    #[napi(catch_unwind)]
    pub fn keep(&self, number: f64) {
        let codec = &mut *self.codec.borrow_mut();
        if let Some(Attachment::Hold(hold)) = codec.completions.take(number as u64) {
            codec.holds.insert(number as u64, hold);
        }
    }

    /// Gives a hold back.
    #[napi(catch_unwind)]
    pub fn release(&self, ticket: f64, number: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let hold = codec.holds.remove(&(number as u64));
        codec.begin(ticket, |_| {
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
    pub fn block(&self, ticket: f64, policy_ref: u32, key: String, length: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let length = number::milliseconds("the length of a block", length);
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            limiter.block(&policy_ref, &key, length?).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[napi(catch_unwind)]
    pub fn unblock(&self, ticket: f64, policy_ref: u32, key: String) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            limiter.unblock(&policy_ref, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets a key's usage.
    #[napi(catch_unwind)]
    pub fn clear(&self, ticket: f64, policy_ref: u32, key: String) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            limiter.clear(&policy_ref, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts.
    #[napi(catch_unwind)]
    pub fn journal(&self, ticket: f64, policy_ref: u32, key: String) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        codec.about(ticket, policy_ref, key, |limiter, policy_ref, key| async move {
            limiter.journal(&policy_ref, &key).await.map(Outcome::Attempts)
        })
    }

    /// Whether the store answers.
    #[napi(catch_unwind)]
    pub fn ping(&self, ticket: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        codec.begin(ticket, |limiter| {
            let limiter = limiter.clone();
            Ok(async move { limiter.ping().await.map(|()| Outcome::Nothing) })
        })
    }

    /// Reads the policy file again, on another thread: a disk may be slow.
    #[napi(catch_unwind)]
    pub fn reload(&self, ticket: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let limiter = codec.limiter.clone();
        let task = async move { limiter.reload().map(|()| Outcome::Nothing) };
        match post_task(ticket as u64, &codec.inbox, task) {
            Ok(task) => {
                codec.tasks.insert(ticket as u64, task);
                0
            }
            Err(error) => codec.answer(ticket as u64, Err(error)),
        }
    }

    /// Gives up what was begun under that ticket, or forgets that it is done.
    #[napi(catch_unwind)]
    pub fn cancel(&self, ticket: f64) {
        let codec = &mut *self.codec.borrow_mut();
        if let Some(task) = codec.tasks.remove(&(ticket as u64)) {
            task.cancel();
        }
    }

    /// Ends the limiter. Holds are given back; what waits for the store is answered.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        let codec = &mut *self.codec.borrow_mut();
        codec.holds.clear();
        codec.loop_reader = None;
        codec.limiter.close();
    }
}
