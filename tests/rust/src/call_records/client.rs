//! A client in this process: it makes calls and records them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::{Builder, Decision, KeyOverride, Limiter, OnStoreError, Result, Source};

use super::record::{Call, CallRecord, Operation, Outcome};
use super::schedule::Schedule;
use super::{monotonic, policies};
use crate::any_limiter::AnyLimiter;
use crate::decision_values::DecisionValues;
use crate::random::Random;

/// A longer wait would outlive the key.
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// How a client calls.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its name in its records.
    pub name: String,
    /// The store.
    pub url: String,
    /// The timeout of a call.
    pub timeout: Duration,
    /// The keys that it uses.
    pub schedule: Schedule,
    /// The longest pause between two calls.
    pub pause: Duration,
    /// The pause after an error, so that few calls on one key have no answer.
    pub after_error: Duration,
    /// The seed of its random choices.
    pub seed: u64,
    /// True if its limiter is the async one.
    pub is_async: bool,
}

impl Client {
    fn builder(&self) -> Result<Builder> {
        let builder = Limiter::builder().store(self.url.clone()).timeout(self.timeout).deny_cache(Duration::ZERO);
        policies().into_iter().try_fold(builder.on_store_error(OnStoreError::Raise), Builder::named)
    }
}

fn decided(decision: &Decision) -> Outcome {
    if decision.source() != Source::Store {
        return Outcome::Local;
    }
    let at = u64::try_from(decision.at().as_micros()).expect("below 2^53");
    Outcome::Decided { at: Some(at), values: Box::new(DecisionValues::of(decision)) }
}

fn make(limiter: &AnyLimiter, call: &Call, schedule: &Schedule) -> (Outcome, Option<Duration>) {
    let (policy, key, cost) = &call.entries[0];
    let policy = policy.as_str();
    let decision = match call.operation {
        Operation::Check => limiter.check(policy, key, *cost, None),
        Operation::Peek => limiter.peek(policy, key, *cost),
        Operation::Charge => limiter.charge(policy, key, *cost),
        Operation::Refund => limiter.refund(policy, key, *cost),
        Operation::CheckAll => limiter.check_all(&call.entries),
        Operation::Clear | Operation::Block | Operation::Override => {
            let own = || KeyOverride::parse(&schedule.own[policy]).expect("limits");
            let done = match (call.operation, call.length) {
                (Operation::Clear, _) => limiter.clear(policy, key),
                (Operation::Override, 0) => limiter.set_override(policy, key, None, None),
                (Operation::Override, _) => limiter.set_override(policy, key, Some(&own()), None),
                (_, 0) => limiter.unblock(policy, key),
                (_, length) => limiter.block(policy, key, Duration::from_micros(length)),
            };
            return (done.map_or_else(|error| Outcome::Failed(error.code().to_owned()), |()| Outcome::Done), None);
        }
    };
    match decision {
        Ok(decision) => (decided(&decision), decision.retry_after().filter(|_| !decision.allowed())),
        Err(error) => (Outcome::Failed(error.code().to_owned()), None),
    }
}

/// Makes calls until the flag is set, and returns its records.
///
/// # Panics
/// When the limiter cannot be made.
#[must_use]
pub fn record_calls(client: &Client, over: &AtomicBool) -> Vec<CallRecord> {
    let builder = client.builder().expect("the policies are new");
    let limiter = AnyLimiter::new(builder, client.is_async).expect("a limiter");
    let mut random = Random::new(client.seed);
    let mut records: Vec<CallRecord> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let group = client.schedule.group(monotonic(), &mut random);
        let mut call = client.schedule.call(&group, &mut random);
        // A second call tries exactly at the time that the first answer gave.
        for is_second in [false, true] {
            let begin = monotonic();
            let (outcome, retry_after) = make(&limiter, &call, &client.schedule);
            let end = monotonic();
            if matches!(outcome, Outcome::Failed(_)) {
                std::thread::sleep(client.after_error);
            }
            records.push(CallRecord {
                client: client.name.clone(),
                number: records.len() as u64,
                group: group.name.clone(),
                call: call.clone(),
                begin,
                end,
                outcome,
            });
            let wait = retry_after.filter(|wait| !is_second && *wait <= LONGEST_WAIT && random.one_in(4));
            let Some(wait) = wait else { break };
            std::thread::sleep(wait);
            call = records[records.len() - 1].call.clone();
        }
        std::thread::sleep(Duration::from_micros(random.below(client.pause.as_micros() as u64)));
    }
    limiter.close();
    records
}
