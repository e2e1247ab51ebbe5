//! Calls that may take their time, and that can be cancelled. Each crosses alone. A method returns as `send_function` does: 0
//! when the answer will be delivered.

use std::future::Future;

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use tidegate::host::{Outcome, Started, post_begun, post_task};
use tidegate::{AsyncLimiter, CheckOptions, Hold, HoldAnswer, Result};

use super::NativeLimiter;
use crate::batch_codec::OwnedPolicyRef;
use crate::node_completions::Attachment;
use crate::number;

/// The options of a call that crosses alone.
fn options(cost: f64, meta: Option<Uint8Array>) -> Result<CheckOptions> {
    let meta = meta.map(|meta| meta.to_vec());
    Ok(CheckOptions { cost: number::cost(cost)?, meta, ..CheckOptions::default() })
}

impl NativeLimiter {
    /// Begins a task on this thread.
    fn begin<F>(&self, ticket: f64, task: impl FnOnce(&AsyncLimiter) -> Result<F>) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let ticket = ticket as u64;
        let codec = &mut *self.codec.borrow_mut();
        let started = task(&codec.limiter).and_then(|task| post_begun(ticket, &codec.queue, task));
        match started {
            Ok(Started::Waits(task)) => {
                self.tasks.borrow_mut().insert(ticket, task);
                0
            }
            Ok(Started::Done(outcome)) => codec.answer(ticket, outcome),
            Err(error) => codec.answer(ticket, Err(error)),
        }
    }

    /// Begins a task about one policy and key.
    fn begin_for_key<F>(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        task: impl FnOnce(AsyncLimiter, OwnedPolicyRef, String) -> F,
    ) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let policy_ref = self.codec.borrow().policy_ref(f64::from(policy)).cloned();
        self.begin(ticket, |limiter| Ok(task(limiter.clone(), policy_ref?, key)))
    }
}

#[napi]
impl NativeLimiter {
    /// Checks several policies and keys, all or nothing.
    #[napi(catch_unwind)]
    pub fn check_all(
        &self,
        ticket: f64,
        policies: Vec<u32>,
        keys: Vec<String>,
        costs: Vec<f64>,
        metas: Vec<Option<Uint8Array>>,
    ) -> i32 {
        let entries: Result<Vec<(OwnedPolicyRef, String, CheckOptions)>> = {
            let codec = self.codec.borrow();
            let entries = policies.iter().zip(keys).zip(costs).zip(metas);
            let entry = |(((policy, key), cost), meta): (((&u32, String), f64), Option<Uint8Array>)| {
                Ok((codec.policy_ref(f64::from(*policy))?.clone(), key, options(cost, meta)?))
            };
            entries.map(entry).collect()
        };
        self.begin(ticket, |limiter| {
            let (limiter, entries) = (limiter.clone(), entries?);
            Ok(async move { limiter.check_all(entries).await.map(Outcome::Decision) })
        })
    }

    /// Waits until the check is admitted; without a timeout as long as it takes.
    #[napi(catch_unwind)]
    pub fn acquire(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        cost: f64,
        timeout: Option<f64>,
        meta: Option<Uint8Array>,
    ) -> i32 {
        let options = options(cost, meta);
        let timeout = timeout.map(|timeout| number::milliseconds("timeoutMs", timeout)).transpose();
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            limiter.acquire_with(&policy_ref, &key, &options?, timeout?).await.map(Outcome::Decision)
        })
    }

    /// Takes units of a `concurrency` limit.
    #[napi(catch_unwind)]
    pub fn hold(&self, ticket: f64, policy: u32, key: String, cost: f64, meta: Option<Uint8Array>) -> i32 {
        let options = options(cost, meta);
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            Ok(match limiter.hold_with(&policy_ref, &key, &options?).await? {
                HoldAnswer::Held(hold) => Outcome::Hold(hold),
                denied => Outcome::Decision(denied.decision().clone()),
            })
        })
    }

    /// Keeps the hold of that number until it is given back.
    #[napi(catch_unwind)]
    pub fn keep(&self, number: f64) {
        if let Some(Attachment::Hold(hold)) = self.codec.borrow().completions.take(number as u64) {
            self.holds.borrow_mut().insert(number as u64, hold);
        }
    }

    /// Whether the units of a hold cannot be relied on any more; false for one that was given back.
    #[napi(catch_unwind)]
    pub fn is_lost(&self, number: f64) -> bool {
        self.holds.borrow().get(&(number as u64)).is_some_and(Hold::lost)
    }

    /// Gives a hold back.
    #[napi(catch_unwind)]
    pub fn release(&self, ticket: f64, number: f64) -> i32 {
        let hold = self.holds.borrow_mut().remove(&(number as u64));
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
    pub fn block(&self, ticket: f64, policy: u32, key: String, length: f64) -> i32 {
        let length = number::milliseconds("the length of a block", length);
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            limiter.block(&policy_ref, &key, length?).await.map(|()| Outcome::Nothing)
        })
    }

    /// Ends a block.
    #[napi(catch_unwind)]
    pub fn unblock(&self, ticket: f64, policy: u32, key: String) -> i32 {
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            limiter.unblock(&policy_ref, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// Forgets a key's usage.
    #[napi(catch_unwind)]
    pub fn clear(&self, ticket: f64, policy: u32, key: String) -> i32 {
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            limiter.clear(&policy_ref, &key).await.map(|()| Outcome::Nothing)
        })
    }

    /// The newest attempts.
    #[napi(catch_unwind)]
    pub fn journal(&self, ticket: f64, policy: u32, key: String) -> i32 {
        self.begin_for_key(ticket, policy, key, |limiter, policy_ref, key| async move {
            limiter.journal(&policy_ref, &key).await.map(Outcome::Attempts)
        })
    }

    /// Forgets everything that is stored under the prefix.
    #[napi(catch_unwind)]
    pub fn clear_all(&self, ticket: f64) -> i32 {
        self.begin(ticket, |limiter| {
            let limiter = limiter.clone();
            Ok(async move { limiter.clear_all().await.map(|()| Outcome::Nothing) })
        })
    }

    /// Whether the store answers.
    #[napi(catch_unwind)]
    pub fn ping(&self, ticket: f64) -> i32 {
        self.begin(ticket, |limiter| {
            let limiter = limiter.clone();
            Ok(async move { limiter.ping().await.map(|()| Outcome::Nothing) })
        })
    }

    /// Reads the policy file again. On another thread, because a disk may be slow.
    #[napi(catch_unwind)]
    pub fn reload(&self, ticket: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let limiter = codec.limiter.clone();
        let task = async move { limiter.reload().map(|()| Outcome::Nothing) };
        match post_task(ticket as u64, &codec.queue, task) {
            Ok(task) => {
                self.tasks.borrow_mut().insert(ticket as u64, task);
                0
            }
            Err(error) => codec.answer(ticket as u64, Err(error)),
        }
    }

    /// Cancels the task with that ticket, or forgets it when it is done.
    #[napi(catch_unwind)]
    pub fn cancel(&self, ticket: f64) {
        let task = self.tasks.borrow_mut().remove(&(ticket as u64));
        if let Some(task) = task {
            task.cancel();
        }
    }
}
