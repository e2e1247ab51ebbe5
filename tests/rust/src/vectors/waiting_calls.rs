//! Calls that wait, each on its own thread or in its own task, and the steps that refer to them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::{AsyncLimiter, CheckOptions, Decision, HoldAnswer, Result};
use tokio::runtime::Runtime;

use super::Mismatch;
use super::calls::text;
use super::run::Run;
use super::unmodelled::cost_of;
use crate::any_limiter::{AnyLimiter, runtime};

/// No call takes this long unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to a call.
pub(super) enum Answered {
    Decision(Decision),
    Hold(HoldAnswer),
}

/// The time of the clock when the answer came, and the answer.
type Answer = (Duration, Result<Answered>);

enum Running {
    Thread(std::thread::JoinHandle<Answer>),
    Task(tokio::task::JoinHandle<Answer>),
}

struct WaitingCall {
    policy: String,
    key: String,
    running: Running,
}

impl WaitingCall {
    fn is_answered(&self) -> bool {
        match &self.running {
            Running::Thread(thread) => thread.is_finished(),
            Running::Task(task) => task.is_finished(),
        }
    }
}

/// The calls of a case that wait, by name.
pub(super) struct WaitingCalls {
    runtime: Runtime,
    calls: BTreeMap<String, WaitingCall>,
    /// The calls that a later step cancels. They run in tasks, because a thread cannot be cancelled.
    cancelled: Vec<String>,
}

impl WaitingCalls {
    pub(super) fn of(case: &Value) -> Self {
        let steps = case["steps"].as_array().into_iter().flatten();
        let cancels = steps.filter(|step| step["do"] == "cancel");
        let cancelled = cancels.filter_map(|step| step["of"].as_str().map(str::to_owned)).collect();
        Self { runtime: runtime(), calls: BTreeMap::new(), cancelled }
    }

    fn get(&self, name: &str) -> std::result::Result<&WaitingCall, Mismatch> {
        self.calls.get(name).ok_or_else(|| format!("no call that waits is named {name:?}"))
    }

    /// Lets the tasks run for a moment.
    pub(super) fn proceed(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) -> std::result::Result<(), Mismatch> {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > PATIENCE {
                return Err(format!("waited in vain until {what}"));
            }
            self.proceed();
        }
        Ok(())
    }
}

fn as_async(limiter: &AnyLimiter) -> AsyncLimiter {
    match limiter {
        AnyLimiter::Blocking(limiter) => limiter.to_async(),
        AnyLimiter::Async(limiter, _) => limiter.clone(),
    }
}

/// The options of the call in a step. `None` if Rust cannot express them.
pub(super) fn options_of(step: &Value) -> Option<CheckOptions> {
    let cost = cost_of(step.get("cost"))?;
    let priority = step["priority"].as_str().map(str::to_owned);
    let meta = step["meta"].as_str().map(|meta| meta.as_bytes().to_vec());
    Some(CheckOptions { priority, meta, partial: step["partial"] == true, ..cost.into() })
}

impl Run {
    /// Begins `acquire` or `hold`. Returns its answer if the step does not give the number of waiting calls.
    pub(super) fn begin(
        &mut self,
        action: &str,
        step: &Value,
    ) -> std::result::Result<Option<Result<Answered>>, Mismatch> {
        let policy = step["policy"].as_str().unwrap_or("p").to_owned();
        let key = text(&step["key"]).ok_or("a key is a text")?;
        let Some(options) = options_of(step) else { return Ok(None) };
        let timeout = step["timeout"].as_u64().map(Duration::from_micros);
        let name = step["as"].as_str().unwrap_or_default().to_owned();
        let (clock, is_hold) = (self.clock.clone(), action == "hold");
        let (asked_policy, asked_key) = (policy.clone(), key.clone());
        let running = match &self.limiter {
            AnyLimiter::Blocking(limiter) if !self.waiting.cancelled.contains(&name) => {
                let limiter = limiter.clone();
                Running::Thread(std::thread::spawn(move || {
                    let (policy, key) = (&*asked_policy, &*asked_key);
                    let answer = if is_hold {
                        limiter.hold_within(policy, key, &options, timeout).map(Answered::Hold)
                    } else {
                        limiter.acquire_with(policy, key, &options, timeout).map(Answered::Decision)
                    };
                    (clock.now(), answer)
                }))
            }
            limiter => {
                let limiter = as_async(limiter);
                Running::Task(self.waiting.runtime.spawn(async move {
                    let (policy, key) = (&*asked_policy, &*asked_key);
                    let answer = if is_hold {
                        limiter.hold_within(policy, key, &options, timeout).await.map(Answered::Hold)
                    } else {
                        limiter.acquire_with(policy, key, &options, timeout).await.map(Answered::Decision)
                    };
                    (clock.now(), answer)
                }))
            }
        };
        self.waiting.calls.insert(name.clone(), WaitingCall { policy, key, running });
        if step.get("waiting").is_none() {
            return self.answer_of(&name).map(Some);
        }
        self.see_waiting(&name, step)?;
        // The first of a line counts as waiting before it asks the store. The ping gives the store time to answer it.
        self.limiter.ping().map_err(|error| error.to_string())?;
        self.waiting.proceed();
        if self.waiting.get(&name)?.is_answered() {
            return Err("it does not wait".to_owned());
        }
        Ok(None)
    }

    /// Waits until as many calls wait for the key of that call as the step expects.
    pub(super) fn see_waiting(&self, name: &str, step: &Value) -> std::result::Result<(), Mismatch> {
        let Some(expected) = step["waiting"].as_u64() else { return Ok(()) };
        let WaitingCall { policy, key, .. } = self.waiting.get(name)?;
        let limiter = as_async(&self.limiter);
        let waiting = || limiter.waiting(&**policy, key) as u64;
        self.waiting.until("so many wait", || waiting() == expected).map_err(|error| format!("{error}: {}", waiting()))
    }

    /// The answer of a call, which must come at the current time of the clock.
    pub(super) fn answer_of(&mut self, name: &str) -> std::result::Result<Result<Answered>, Mismatch> {
        let call = self.waiting.get(name)?;
        self.waiting.until("it is answered", || call.is_answered())?;
        let (answered_at, answer) = match self.waiting.calls.remove(name).ok_or("it was looked up")?.running {
            Running::Thread(thread) => thread.join().map_err(|_| "it panicked".to_owned())?,
            Running::Task(task) => self.waiting.runtime.block_on(task).map_err(|error| error.to_string())?,
        };
        let now = self.clock.now();
        if answered_at != now {
            return Err(format!("it was answered {:?} before", now.saturating_sub(answered_at)));
        }
        Ok(answer)
    }

    /// Makes sure that a call still has no answer after a ping has gone to the store and back.
    pub(super) fn see_unanswered(&self, name: &str) -> std::result::Result<(), Mismatch> {
        let call = self.waiting.get(name)?;
        self.limiter.ping().map_err(|error| error.to_string())?;
        self.waiting.proceed();
        if call.is_answered() { Err("it is answered already".to_owned()) } else { Ok(()) }
    }

    pub(super) fn cancel(&mut self, name: &str, step: &Value) -> std::result::Result<(), Mismatch> {
        let Running::Task(task) = &self.waiting.get(name)?.running else { return Err("a thread".to_owned()) };
        task.abort();
        self.see_waiting(name, step)?;
        self.waiting.calls.remove(name);
        Ok(())
    }
}
