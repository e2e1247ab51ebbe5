//! Calls that may take time, and can be cancelled. Each crosses alone. A method returns the same as `send_function`: 0 if the
//! answer will be delivered later.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use tidegate::host::{Call, Outcome, OutgoingCall, Started, post_begun, post_task};
use tidegate::{AsyncLimiter, CheckOptions, Error, ErrorKind, Hold, HoldAnswer, KeyOverride, Result};

use super::NativeLimiter;
use crate::answer_record::{answered, charged_units};
use crate::array_layout::TaskKind;
use crate::batch_codec::{Attachment, OwnedPolicyRef};
use crate::number;
use crate::observation::Observation;
use crate::refused_job::Denial;

impl NativeLimiter {
    /// Begins a task on this thread.
    fn begin<F>(&self, ticket: f64, task: impl FnOnce(AsyncLimiter) -> F) -> i32
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let codec = &mut *self.codec.borrow_mut();
        let started = post_begun(ticket as u64, &codec.queue, task(codec.limiter.clone()));
        let outcome = match started {
            Ok(Started::Waits(task)) => {
                self.tasks.borrow_mut().insert(ticket as u64, task);
                None
            }
            Ok(Started::Done(outcome)) => Some(outcome),
            Err(error) => Some(Err(error)),
        };
        codec.answer(ticket as u64, outcome)
    }
}

/// The entries of a call about several policies and keys: a list of each of their parts.
#[napi(object)]
pub struct CallEntries {
    /// The numbers of the policies.
    pub policies: Vec<u32>,
    /// The keys.
    pub keys: Vec<String>,
    /// The costs, of limits that name no unit.
    pub costs: Vec<f64>,
    /// The metadata.
    pub metas: Vec<Option<Uint8Array>>,
    /// Numbers by the names of units.
    pub units: Vec<Option<HashMap<String, f64>>>,
    /// The classes.
    pub priorities: Vec<Option<String>>,
}

impl NativeLimiter {
    /// Reads the entries of a call.
    fn entries(&self, given: CallEntries) -> Result<Vec<(OwnedPolicyRef, String, CheckOptions)>> {
        let codec = self.codec.borrow();
        let options = given.costs.into_iter().zip(given.units).zip(given.metas).zip(given.priorities);
        let entry = |((policy, key), (((cost, units), meta), priority)): ((u32, String), _)| {
            let options = number::options(cost, units, meta, priority)?;
            Ok((codec.policy_ref(f64::from(policy))?.clone(), key, options))
        };
        given.policies.into_iter().zip(given.keys).zip(options).map(entry).collect()
    }

    /// Reads a call that goes out: its policy and key, and as a second entry the key of its service if that is another one.
    fn outgoing_call(&self, given: CallEntries) -> Result<OutgoingCall<OwnedPolicyRef>> {
        let mut entries = self.entries(given)?.into_iter();
        let (policy, key, options) =
            entries.next().ok_or_else(|| Error::new(ErrorKind::ConfigInvalid, "a call has no policy"))?;
        Ok(OutgoingCall::new(policy, key, entries.next().map(|(_, origin, _)| origin), options))
    }
}

#[napi]
impl NativeLimiter {
    /// Checks the policies and keys of `calls`, all or nothing.
    #[napi(catch_unwind)]
    pub fn check_together(&self, ticket: f64) -> i32 {
        let blocking = self.codec.borrow().limiter.to_blocking();
        if !blocking.waits() {
            let codec = &mut *self.codec.borrow_mut();
            let decision = codec.entries().and_then(|entries| blocking.check_all(entries));
            return codec.answer(ticket as u64, Some(decision.map(Outcome::Decision)));
        }
        let entries: Result<Vec<_>> = {
            let codec = self.codec.borrow();
            let owned = |(policy, key, cost): (&OwnedPolicyRef, String, u64)| (policy.clone(), key, cost);
            codec.entries().map(|entries| entries.into_iter().map(owned).collect())
        };
        self.begin(ticket, |limiter| async move { limiter.check_all(entries?).await.map(Outcome::Decision) })
    }

    /// Checks several policies and keys, all or nothing: with metadata, units or classes, or with more than `calls` takes.
    #[napi(catch_unwind)]
    pub fn check_all(&self, ticket: f64, entries: CallEntries) -> i32 {
        let entries = self.entries(entries);
        self.begin(ticket, |limiter| async move { limiter.check_all(entries?).await.map(Outcome::Decision) })
    }

    /// Asks the policies of a request. It holds units of concurrency limits and checks all others, and one refusal takes everything back.
    #[napi(catch_unwind)]
    pub fn admit(&self, ticket: f64, entries: CallEntries, records_steps: bool) -> i32 {
        let entries = self.entries(entries);
        self.begin(ticket, move |limiter| async move {
            limiter.admit(&entries?, records_steps).await.map(|answer| Outcome::Admission(Box::new(answer)))
        })
    }

    /// Begins a task about one key. `length` is the time to wait, or the length of a block. Without it, the task waits without a limit.
    #[napi(catch_unwind)]
    #[allow(clippy::too_many_arguments, reason = "an object would cost more than the call")]
    pub fn begin_task(
        &self,
        ticket: f64,
        kind: TaskKind,
        policy: u32,
        key: String,
        cost: f64,
        length: Option<f64>,
        meta: Option<Uint8Array>,
        units: Option<HashMap<String, f64>>,
        priority: Option<String>,
    ) -> i32 {
        let policy = self.codec.borrow().policy_ref(f64::from(policy)).cloned();
        let options = number::options(cost, units, meta, priority);
        let what = if matches!(kind, TaskKind::Block) { "the length of a block" } else { "timeoutMs" };
        let length = length.map(|length| number::milliseconds(what, length)).transpose();
        self.begin(ticket, move |limiter| async move {
            let (policy, options, length) = (policy?, options?, length?);
            match kind {
                TaskKind::Acquire => limiter.acquire_with(&policy, &key, &options, length).await.map(Outcome::Decision),
                TaskKind::Hold => Ok(match limiter.hold_within(&policy, &key, &options, length).await? {
                    HoldAnswer::Held(hold) => Outcome::Hold(hold),
                    denied => Outcome::Decision(denied.decision().clone()),
                }),
                TaskKind::Block => {
                    limiter.block(&policy, &key, length.unwrap_or_default()).await.map(|()| Outcome::Nothing)
                }
                TaskKind::Unblock => limiter.unblock(&policy, &key).await.map(|()| Outcome::Nothing),
                TaskKind::Clear => limiter.clear(&policy, &key).await.map(|()| Outcome::Nothing),
                TaskKind::Journal => limiter.journal(&policy, &key).await.map(Outcome::Attempts),
            }
        })
    }

    /// Waits for the turn of a call that goes out.
    #[napi(catch_unwind)]
    pub fn turn(&self, ticket: f64, call: CallEntries, timeout: Option<f64>, announces: bool) -> i32 {
        let call = self.outgoing_call(call);
        let timeout = timeout.map(|timeout| number::milliseconds("timeoutMs", timeout)).transpose();
        self.begin(ticket, move |limiter| async move {
            let turn = limiter.turn(&call?, timeout?, announces).await?;
            Ok(Outcome::Admission(Box::new(turn)))
        })
    }

    /// The refusal of the service since such a call was admitted at that time, if there is one.
    #[napi(catch_unwind)]
    pub fn refused_since(&self, ticket: f64, call: CallEntries, at: f64) -> i32 {
        let call = self.outgoing_call(call);
        self.begin(ticket, move |limiter| async move {
            let refusal = limiter.refused_since(&call?, Duration::from_micros(at as u64)).await?;
            Ok(refusal.map_or(Outcome::Nothing, Outcome::Decision))
        })
    }

    /// Learns the limits in the response to a call. The numbers are those of its Decision.
    #[napi(catch_unwind)]
    pub fn learn(&self, ticket: f64, call: CallEntries, observations: Vec<Observation>, decision: Vec<f64>) -> i32 {
        let call = self.outgoing_call(call);
        let said: Result<Vec<_>> = observations.into_iter().map(TryInto::try_into).collect();
        let answered = answered(&decision);
        self.begin(ticket, move |limiter| async move {
            limiter.learn(&call?, said?, Some(answered)).await.map(|()| Outcome::Nothing)
        })
    }

    /// The time until a refused job asks again.
    #[napi(catch_unwind)]
    pub fn job_wait(
        &self,
        ticket: f64,
        policy: u32,
        denial: Denial,
        came_back: bool,
        usual_length_ms: Option<f64>,
    ) -> i32 {
        let job = {
            let codec = self.codec.borrow();
            let policy = codec.policy_ref(f64::from(policy));
            let policy = policy.and_then(|policy| codec.limiter.policy_in_force(policy, &denial.key));
            policy.and_then(|policy| denial.of_job(policy, came_back, usual_length_ms))
        };
        self.begin(ticket, |limiter| async move { limiter.job_wait(&job?).await.map(Outcome::Wait) })
    }

    /// Learns the limits in the response to a call. The numbers are those of its Decision.
    #[napi(catch_unwind)]
    pub fn observe(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        observations: Vec<Observation>,
        decision: Option<Vec<f64>>,
    ) -> i32 {
        let policy = self.codec.borrow().policy_ref(f64::from(policy)).cloned();
        let said: Result<Vec<_>> = observations.into_iter().map(TryInto::try_into).collect();
        let answered = decision.map(|numbers| answered(&numbers));
        self.begin(ticket, move |limiter| async move {
            limiter.call(&policy?, &key, &Call::answered(said?, answered)).await.map(Outcome::Decision)
        })
    }

    /// Settles a check of limits with these units, by numbers for the units. The other numbers are those of its Decision.
    #[napi(catch_unwind)]
    #[allow(clippy::too_many_arguments, reason = "an object would cost more than the call")]
    pub fn settle_units(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        decision: Vec<f64>,
        named: Vec<String>,
        policy_changed: bool,
        actual: f64,
        units: Option<HashMap<String, f64>>,
    ) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let named: Vec<_> = named.into_iter().map(|name| (!name.is_empty()).then_some(name)).collect();
        let charged = charged_units(&decision, policy_changed, &named);
        let settled = codec.policy_ref(f64::from(policy)).cloned();
        let limiter = codec.limiter.clone();
        let task = async move {
            let actual = number::cost_of(actual, units)?;
            limiter.settle_charged(settled?, &key, &charged, &actual).await.map(|()| Outcome::Nothing)
        };
        // This is a call, and nothing cancels it. It gets an answer even if the limiter is closed meanwhile.
        let outcome = match post_begun(ticket as u64, &codec.queue, task) {
            Ok(Started::Waits(_)) => None,
            Ok(Started::Done(outcome)) => Some(outcome),
            Err(error) => Some(Err(error)),
        };
        codec.answer(ticket as u64, outcome)
    }

    /// Gives a key other limits than its policy, as text. Without a text, it gets the limits of its policy again.
    #[napi(catch_unwind)]
    pub fn set_override(&self, ticket: f64, policy: u32, key: String, limits: Option<String>, ttl: Option<f64>) -> i32 {
        let policy = self.codec.borrow().policy_ref(f64::from(policy)).cloned();
        let own = limits.map(|text| KeyOverride::parse(&text)).transpose();
        let ttl = ttl.map(|ttl| number::milliseconds("ttlMs", ttl)).transpose();
        self.begin(ticket, move |limiter| async move {
            let (policy, own, ttl) = (policy?, own?, ttl?);
            limiter.set_override(&policy, &key, own.as_ref(), ttl).await.map(|()| Outcome::Nothing)
        })
    }

    /// The keys of a policy that have other limits.
    #[napi(catch_unwind)]
    pub fn overrides(&self, ticket: f64, policy: u32) -> i32 {
        let policy = self.codec.borrow().policy_ref(f64::from(policy)).cloned();
        self.begin(ticket, move |limiter| async move { limiter.overrides(&policy?).await.map(Outcome::Overrides) })
    }

    /// Keeps the hold of that number until it is given back.
    #[napi(catch_unwind)]
    pub fn keep(&self, number: f64) {
        if let Some(Attachment::Hold(hold)) = self.codec.borrow().completions.take(number as u64) {
            self.holds.borrow_mut().insert(number as u64, hold);
        }
    }

    /// True if other callers may have the units of a hold. False for a hold that was given back.
    #[napi(catch_unwind)]
    pub fn is_lost(&self, number: f64) -> bool {
        self.holds.borrow().get(&(number as u64)).is_some_and(Hold::lost)
    }

    /// Gives a hold back.
    #[napi(catch_unwind)]
    pub fn release(&self, ticket: f64, number: f64) -> i32 {
        let hold = self.holds.borrow_mut().remove(&(number as u64));
        self.begin(ticket, |_| async move {
            if let Some(hold) = hold {
                hold.release().await;
            }
            Ok(Outcome::Nothing)
        })
    }

    /// Forgets everything that is stored under the prefix.
    #[napi(catch_unwind)]
    pub fn clear_all(&self, ticket: f64) -> i32 {
        self.begin(ticket, |limiter| async move { limiter.clear_all().await.map(|()| Outcome::Nothing) })
    }

    /// Ends the limiter. The units of its callers go back, and calls that wait for the store are answered.
    #[napi(catch_unwind)]
    pub fn close(&self, ticket: f64) -> i32 {
        self.loop_reader.set(None);
        let started = self.begin(ticket, |limiter| async move {
            limiter.close_on_thread().await;
            Ok(Outcome::Nothing)
        });
        self.holds.borrow_mut().clear();
        started
    }

    /// Settles when the store answers.
    #[napi(catch_unwind)]
    pub fn ping(&self, ticket: f64) -> i32 {
        self.begin(ticket, |limiter| async move { limiter.ping().await.map(|()| Outcome::Nothing) })
    }

    /// Reads the policy file again. On another thread, because a disk may be slow.
    #[napi(catch_unwind)]
    pub fn reload(&self, ticket: f64) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let limiter = codec.limiter.clone();
        let task = async move { limiter.reload().map(|()| Outcome::Nothing) };
        let started = post_task(ticket as u64, &codec.queue, task);
        let failure = started.map(|task| self.tasks.borrow_mut().insert(ticket as u64, task)).err();
        codec.answer(ticket as u64, failure.map(Err))
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
