//! An open limiter, for calls from JavaScript.

mod tasks;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{ClassInstance, Either, Float64Array, Function, FunctionRef, Uint8Array};
use napi_derive::napi;
use tidegate::host::{ChargedEntry, Outcome, Task, check_cost, counters_json, samples_json, shared_cost, stats_json};
use tidegate::{Algorithm, Hold};

use crate::answer_record::charged_units;
use crate::batch_codec::{Attachment, BatchCall, BatchCodec, OwnedPolicyRef};
use crate::costs::{GivenCost, SettledEntry, actual_costs, to_js};
use crate::error_value::{ErrorValue, camel_case, crossing};
use crate::http::{Announcement, announcement};
use crate::loop_reader::LoopReader;
use crate::number;
use crate::policy::Policy;

/// A policy as calls name it from now on.
#[napi(object)]
pub struct ResolvedPolicy {
    /// Its number in calls.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// True if it has units that are held and given back.
    pub holds: bool,
    /// The unit of each limit, or an empty text for a limit without one. Missing if no limit has a unit.
    pub units: Option<Vec<String>>,
    /// The classes of calls for which a part stays free. Missing if there are none.
    pub classes: Option<Vec<String>>,
    /// How HTTP announces it, if it does.
    pub announcement: Option<Announcement>,
    /// The memory that it takes.
    pub bytes: u32,
}

/// While it exists, a reload refuses to drop a policy.
#[napi]
pub struct PolicyUse {
    _use: tidegate::PolicyUse,
}

fn owned(policy: Either<String, ClassInstance<'_, Policy>>) -> OwnedPolicyRef {
    match policy {
        Either::A(text) => OwnedPolicyRef::Text(text),
        Either::B(policy) => OwnedPolicyRef::Policy(policy.policy.clone()),
    }
}

/// The units of the limits of a policy, if any limit names one.
fn units_of(policy: &tidegate::Policy) -> Option<Vec<String>> {
    let name = |limit: &tidegate::Limit| limit.unit().map(|unit| unit.name().to_owned());
    let is_named = policy.limits().iter().any(|limit| limit.unit().is_some());
    is_named.then(|| policy.limits().iter().map(|limit| name(limit).unwrap_or_default()).collect())
}

/// A key with an override.
#[napi(object)]
pub struct OverriddenKey {
    /// The key.
    pub key: String,
    /// Its limits as a notation, or `none`.
    pub limits: String,
    /// The moment at which the override ends, in milliseconds since 1970.
    pub expires_at: Option<f64>,
}

impl From<tidegate::OverriddenKey> for OverriddenKey {
    fn from(own: tidegate::OverriddenKey) -> Self {
        let since = own.expires_at.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        Self { key: own.key, limits: own.limits, expires_at: since.map(|since| since.as_secs_f64() * 1_000.0) }
    }
}

/// One remembered attempt.
#[napi(object)]
pub struct Attempt {
    /// When, in milliseconds since 1970.
    pub at: f64,
    /// True if it was allowed.
    pub allowed: bool,
    /// The units that were asked for.
    pub cost: f64,
    /// The caller's metadata.
    pub meta: Option<Uint8Array>,
}

impl From<tidegate::Attempt> for Attempt {
    fn from(attempt: tidegate::Attempt) -> Self {
        Self {
            at: attempt.at as f64 / 1_000.0,
            allowed: attempt.allowed,
            cost: attempt.cost as f64,
            meta: attempt.meta.map(Uint8Array::new),
        }
    }
}

/// An open limiter.
#[napi]
pub struct NativeLimiter {
    codec: Rc<RefCell<BatchCodec>>,
    /// Tasks that are not done, by ticket.
    tasks: RefCell<HashMap<u64, Task>>,
    /// Holds that were not given back, by their numbers as attachments.
    holds: RefCell<HashMap<u64, Hold>>,
    /// Present while the event loop reads the limiter's sockets.
    loop_reader: Cell<Option<LoopReader>>,
}

impl NativeLimiter {
    pub(crate) fn new(codec: BatchCodec) -> Self {
        Self {
            codec: Rc::new(RefCell::new(codec)),
            tasks: RefCell::default(),
            holds: RefCell::default(),
            loop_reader: Cell::default(),
        }
    }

    /// Makes the event loop read the limiter's sockets, if it can. `on_answers` gets the number of numbers in `answers`.
    pub(crate) fn read_on_loop(&self, env: &Env, on_answers: FunctionRef<i32, ()>) {
        self.loop_reader.set(LoopReader::start(&self.codec, env, on_answers));
    }
}

impl Drop for NativeLimiter {
    /// Node drops it when a worker ends, also a terminated one. Then nothing waits for its tasks, but a task keeps the limiter
    /// open. A caller in `acquire` would go on to take units.
    fn drop(&mut self) {
        for task in self.tasks.get_mut().values() {
            task.cancel();
        }
    }
}

#[napi]
impl NativeLimiter {
    /// Adds a name, a notation or a policy to the list that calls refer to.
    #[napi(catch_unwind)]
    pub fn resolve(&self, policy: Either<String, ClassInstance<'_, Policy>>) -> Either<ResolvedPolicy, ErrorValue> {
        let codec = &mut *self.codec.borrow_mut();
        let policy_ref = owned(policy);
        crossing(codec.limiter.policy(&policy_ref).map(|policy| {
            let resolved = ResolvedPolicy {
                id: codec.policies.len() as u32,
                name: policy.name().to_owned(),
                holds: policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency),
                units: units_of(&policy),
                classes: policy
                    .options()
                    .priorities
                    .as_ref()
                    .map(|classes| classes.iter().map(|(name, _)| name.to_owned()).collect()),
                announcement: announcement(&policy),
                bytes: tidegate::host::policy_bytes(&policy) as u32,
            };
            codec.policies.push((policy_ref, policy));
            resolved
        }))
    }

    /// How HTTP announces a policy with the limits of one of its keys.
    #[napi(catch_unwind)]
    pub fn announcement_for(&self, policy: u32, key: String) -> Option<Announcement> {
        let codec = self.codec.borrow();
        let policy = codec.policy_ref(f64::from(policy)).ok()?;
        announcement(&codec.limiter.policy_in_force(policy, &key).ok()?)
    }

    /// The unit of each limit of one of its keys, as `units` of a resolved policy.
    #[napi(catch_unwind)]
    pub fn units_for(&self, policy: u32, key: String) -> Option<Vec<String>> {
        let codec = self.codec.borrow();
        let policy = codec.policy_ref(f64::from(policy)).ok()?;
        units_of(&codec.limiter.policy_in_force(policy, &key).ok()?)
    }

    /// Names the store and the prefix: limiters of the same ones settle each other's Decisions.
    #[napi(catch_unwind)]
    pub fn identity(&self) -> String {
        format!("{:x}", self.codec.borrow().limiter.identity())
    }

    /// Registers a use of a policy by its name, until the `PolicyUse` is collected.
    #[napi(catch_unwind)]
    pub fn use_policy(
        &self,
        policy: Either<String, ClassInstance<'_, Policy>>,
        by: String,
    ) -> Either<PolicyUse, ErrorValue> {
        let policy_use = self.codec.borrow().limiter.use_policy(owned(policy), &by);
        crossing(policy_use.map(|policy_use| PolicyUse { _use: policy_use }))
    }

    /// The policy that a notation means, without adding it to that list.
    #[napi(catch_unwind)]
    pub fn parse(&self, notation: String) -> Either<Policy, ErrorValue> {
        crossing(self.codec.borrow().limiter.policy(notation).map(|policy| Policy { policy }))
    }

    /// Empties that list.
    #[napi(catch_unwind)]
    pub fn forget_policies(&self) {
        self.codec.borrow_mut().policies.clear();
    }

    /// The policy that a call would apply.
    #[napi(catch_unwind)]
    pub fn policy(&self, policy: u32) -> Either<Policy, ErrorValue> {
        let codec = &*self.codec.borrow();
        let policy = codec.policy_ref(f64::from(policy)).and_then(|policy_ref| codec.limiter.policy(policy_ref));
        crossing(policy.map(|policy| Policy { policy }))
    }

    /// The number of callers that wait for a key in `acquire`.
    #[napi(catch_unwind)]
    pub fn waiting(&self, policy: u32, key: String) -> u32 {
        let codec = &*self.codec.borrow();
        let waiting =
            codec.policy_ref(f64::from(policy)).map_or(0, |policy_ref| codec.limiter.waiting(policy_ref, &key));
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// True if another call may have learned, since this call was admitted, that the service refuses calls of the key. A peek
    /// gives the answer.
    #[napi(catch_unwind)]
    pub fn may_be_refused_since(&self, key: String, at: f64) -> bool {
        self.codec.borrow().limiter.may_be_refused_since(&key, Duration::from_micros(at as u64))
    }

    /// Gives another share of the keys to the new store of a rollout.
    #[napi(catch_unwind)]
    pub fn set_rollout(&self, percent: f64) -> Option<ErrorValue> {
        self.codec.borrow().limiter.set_rollout(percent).err().map(ErrorValue::from)
    }

    /// Counts denials of a policy that JavaScript has repeated.
    #[napi(catch_unwind)]
    pub fn count_repeated(&self, policy: u32, times: f64) {
        let codec = self.codec.borrow();
        if let Some((_, policy)) = codec.policies.get(policy as usize) {
            codec.limiter.count_repeated(policy, times as u64);
        }
    }

    /// The counters, as JSON.
    #[napi(catch_unwind)]
    pub fn counters(&self) -> String {
        counters_json(&self.codec.borrow().limiter.counters(), camel_case)
    }

    /// The stats, as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        stats_json(&self.codec.borrow().limiter.stats(), camel_case)
    }

    /// The values of a metric, as JSON.
    #[napi(catch_unwind)]
    pub fn samples(&self, metric: String) -> String {
        samples_json(&self.codec.borrow().limiter.stats(), Some(&metric))
    }

    /// The function that makes the calls in `calls`. It puts immediate answers into `answers`, and returns
    /// the number of numbers there, or `TOO_MANY`. It is a separate function because a method of an object costs four times as much.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn send_function<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let codec = Rc::clone(&self.codec);
        env.create_function_from_closure("send", move |_| Ok(codec.borrow_mut().send()))
    }

    /// The function that fetches delivered answers. It returns the same.
    #[napi(catch_unwind, ts_return_type = "() => number")]
    pub fn collect_function<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), i32>> {
        let codec = Rc::clone(&self.codec);
        env.create_function_from_closure("collect", move |_| Ok(codec.borrow_mut().collect()))
    }

    /// The answers that did not fit into `answers`.
    #[napi(catch_unwind)]
    pub fn overflow(&self) -> Float64Array {
        Float64Array::new(self.codec.borrow_mut().overflow())
    }

    /// Takes the error of that number.
    #[napi(catch_unwind)]
    pub fn error(&self, number: f64) -> Option<ErrorValue> {
        match self.codec.borrow().completions.take(number as u64)? {
            Attachment::Error(error) => Some(error.into()),
            Attachment::Hold(_) | Attachment::Attempts(_) | Attachment::Overrides(_) => None,
        }
    }

    /// Takes the keys with other numbers of that number.
    #[napi(catch_unwind)]
    pub fn overridden_keys(&self, number: f64) -> Vec<OverriddenKey> {
        match self.codec.borrow().completions.take(number as u64) {
            Some(Attachment::Overrides(overrides)) => overrides.into_iter().map(OverriddenKey::from).collect(),
            _ => Vec::new(),
        }
    }

    /// Takes the attempts of that number.
    #[napi(catch_unwind)]
    pub fn attempts(&self, number: f64) -> Vec<Attempt> {
        match self.codec.borrow().completions.take(number as u64) {
            Some(Attachment::Attempts(attempts)) => attempts.into_iter().map(Attempt::from).collect(),
            _ => Vec::new(),
        }
    }

    /// Drops the attachment of that number. A hold is given back.
    #[napi(catch_unwind)]
    pub fn discard(&self, number: f64) {
        let attachment = self.codec.borrow().completions.take(number as u64);
        drop(attachment);
    }

    /// Why no call of that cost may be made of a policy.
    #[napi(catch_unwind)]
    pub fn cost_error(&self, policy: u32, cost: f64, units: Option<HashMap<String, f64>>) -> Option<ErrorValue> {
        let codec = self.codec.borrow();
        let (_, policy) = codec.policies.get(policy as usize)?;
        number::cost_of(cost, units).and_then(|cost| check_cost(policy, &cost)).err().map(ErrorValue::from)
    }

    /// The share of each policy in a cost by units. A policy that counts none of the units has none.
    #[napi(catch_unwind)]
    pub fn shared_cost(
        &self,
        policies: Vec<u32>,
        units: HashMap<String, f64>,
    ) -> Either<Vec<Option<GivenCost>>, ErrorValue> {
        let codec = self.codec.borrow();
        let policies: Vec<_> = policies.iter().filter_map(|id| Some(&codec.policies.get(*id as usize)?.1)).collect();
        let cost = number::cost_of(1.0, Some(units));
        crossing(cost.and_then(|cost| shared_cost(&cost, &policies)).map(to_js))
    }

    /// The actual cost of each charged entry. One without a cost stays as it is.
    #[napi(catch_unwind)]
    pub fn costs_of_entries(
        &self,
        entries: Vec<SettledEntry>,
        costs: Vec<Option<GivenCost>>,
        names: Option<Vec<String>>,
        is_one: bool,
    ) -> Either<Vec<Option<GivenCost>>, ErrorValue> {
        let codec = self.codec.borrow();
        let charged: Vec<_> = entries
            .iter()
            .filter_map(|entry| {
                let (_, policy) = codec.policies.get(entry.policy as usize)?;
                Some(ChargedEntry { policy, given: &entry.given, names_cost: entry.names_cost })
            })
            .collect();
        let actual = actual_costs(costs, names, is_one);
        crossing(actual.and_then(|actual| actual.of_entries(&charged)).map(to_js))
    }

    /// Makes one call with metadata or units, or with a key that is too long for `key_text`.
    #[napi(catch_unwind)]
    #[allow(clippy::too_many_arguments, reason = "an object would cost more than the call")]
    pub fn call_alone(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        kind: u8,
        cost: f64,
        meta: Option<Uint8Array>,
        units: Option<HashMap<String, f64>>,
        priority: Option<String>,
    ) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let call = BatchCall { ticket: ticket as u64, policy: f64::from(policy), kind, cost };
        let outcome = match number::options(cost, units, meta, priority) {
            Ok(options) => codec.post_of(&call, &key, options, None),
            Err(error) => Some(Err(error)),
        };
        codec.answer(call.ticket, outcome)
    }

    /// Settles a check. The numbers are those of its Decision.
    #[napi(catch_unwind)]
    pub fn settle(
        &self,
        ticket: f64,
        policy: u32,
        key: String,
        decision: Vec<f64>,
        policy_changed: bool,
        actual: f64,
    ) -> i32 {
        let codec = &mut *self.codec.borrow_mut();
        let settled = number::cost(actual).and_then(|actual| {
            let (policy_ref, charged) =
                (codec.policy_ref(f64::from(policy))?, charged_units(&decision, policy_changed, &[]));
            codec.limiter.post_settle(policy_ref, &key, &charged, actual, ticket as u64, &codec.queue).transpose()
        });
        let outcome = settled.transpose().map(|settled| settled.map(|()| Outcome::Nothing));
        codec.answer(ticket as u64, outcome)
    }
}
