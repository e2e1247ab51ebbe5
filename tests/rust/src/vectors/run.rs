//! One case: its clock, its policies, and its steps one after the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::Format;
use tidegate::{Builder, Decision, Error, Hold, KeyOverride, ManualClock, Options, Policy, PolicyFile};

use super::waiting_calls::WaitingCalls;
use super::{Case, Mismatch, Variant};
use crate::any_limiter::{AnyLimiter, fresh_prefix};
use crate::decision_values::includes;
use crate::model::{Model, Receipt};
use crate::own_store::Table;

/// 2024-01-01T00:00:00Z: a Monday, and the first moment of an hour, a day, a week, a month and a year.
const START: u64 = 1_704_067_200_000_000;

/// The policies of a case, or of a change: a map by name.
pub(super) fn policies(value: &Value) -> Option<Value> {
    match (value.get("policy"), value.get("policies")) {
        (Some(policy), None) => Some(json!({ "p": policy })),
        (None, Some(policies)) => Some(policies.clone()),
        _ => None,
    }
}

/// A file that is removed when this is dropped.
pub(super) struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-{}.json", fresh_prefix())))
    }

    pub(super) fn write(&self, policies: &Value) -> String {
        let text = json!({ "policies": policies }).to_string();
        std::fs::write(&self.0, &text).expect("a temporary file");
        text
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// A decision that a step named, with the arguments of its check.
pub(super) struct NamedDecision {
    pub(super) decision: Decision,
    pub(super) charged: u64,
    pub(super) receipt: Receipt,
    pub(super) policy: String,
    pub(super) key: String,
}

/// One case on one variant.
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) file: TemporaryFile,
    pub(super) policies: PolicyFile,
    pub(super) clock: Arc<ManualClock>,
    pub(super) limiter: AnyLimiter,
    pub(super) model: Model,
    pub(super) named: BTreeMap<String, NamedDecision>,
    /// By name: the hold, its number in the model, its policy and its key.
    pub(super) holds: BTreeMap<String, (Hold, u64, String, String)>,
    /// By policy and key: the override, and the moment at which it ends.
    pub(super) own: BTreeMap<(String, String), (KeyOverride, u64)>,
    pub(super) unmodelled: Unmodelled,
    pub(super) waiting: WaitingCalls,
}

/// The named decisions and holds of a case that the model cannot run: it counts units, or has calls that wait.
#[derive(Default)]
pub(super) struct Unmodelled {
    pub(super) is_so: bool,
    pub(super) named: BTreeMap<String, Decision>,
    pub(super) holds: BTreeMap<String, Hold>,
}

impl Run {
    pub(super) fn new(case: &Case, variant: &Variant) -> Result<Self, Mismatch> {
        let start = case.value.get("start").map_or(START, |start| start.as_u64().expect("start is a moment"));
        let file = TemporaryFile::new();
        let text = file.write(&policies(&case.value).unwrap_or_else(|| json!({ "unused": "1/s" })));
        let clock = Arc::new(ManualClock::new(Duration::from_micros(start)));
        let mismatch = |error: Error| format!("the limiter: {error}");
        let builder = Builder::from_file(&file.0).map_err(mismatch)?.prefix(fresh_prefix());
        let builder = match &*variant.store {
            "own" => builder.key_value_store(Table::default()),
            url => builder.store(url),
        };
        let builder = builder.timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
        let policies = PolicyFile::parse(&text, Format::Json, None).map_err(mismatch)?;
        let counts_units =
            policies.policies().iter().any(|policy| policy.limits().iter().any(|limit| limit.unit().is_some()));
        let waits =
            case.value["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step.get("timeout").is_some()));
        Ok(Self {
            start,
            unmodelled: Unmodelled { is_so: counts_units || waits, ..Unmodelled::default() },
            waiting: WaitingCalls::of(&case.value),
            policies,
            file,
            clock,
            limiter: AnyLimiter::new(builder, variant.is_async).map_err(mismatch)?,
            model: Model::new(start),
            named: BTreeMap::new(),
            holds: BTreeMap::new(),
            own: BTreeMap::new(),
        })
    }

    pub(super) fn steps(&mut self, case: &Value) -> Result<(), Mismatch> {
        let steps = case["steps"].as_array().ok_or("it has no steps")?;
        for (index, step) in steps.iter().enumerate() {
            self.step(step).map_err(|mismatch| format!("step {}: {step}\n{mismatch}", index + 1))?;
        }
        Ok(())
    }

    fn set(&mut self, now: u64) {
        self.clock.set(Duration::from_micros(now));
        self.model.set(now);
    }

    /// The policy with that name. If there is none, the name is read as notation.
    pub(super) fn policy(&self, name: &str) -> Result<Policy, Mismatch> {
        match self.policies.get(name) {
            Some(policy) => Ok(policy.clone()),
            None => Policy::parse(name).map_err(|error| format!("{name}: {error}")),
        }
    }

    /// The policy with the limits of a key, and true if an override gives them. `None` for a key without limits.
    pub(super) fn policy_of(&self, name: &str, key: &str) -> Result<(Option<Policy>, bool), Mismatch> {
        let policy = self.policy(name)?;
        let live = self.own.get(&(name.to_owned(), key.to_owned())).filter(|(_, ends)| *ends > self.model.now());
        let own = live.map(|(own, _)| own).or_else(|| policy.options().overrides.as_ref()?.get(key));
        let Some(own) = own else { return Ok((Some(policy), false)) };
        if own.is_unlimited() {
            return Ok((None, true));
        }
        let options = Options { overrides: None, ..policy.options().clone() };
        let named = Policy::new(own.limits().to_vec(), options).and_then(|own| own.named(policy.name()));
        Ok((Some(named.map_err(|error| error.to_string())?), true))
    }

    fn step(&mut self, step: &Value) -> Result<(), Mismatch> {
        let known = [
            "at",
            "do",
            "policy",
            "policies",
            "key",
            "cost",
            "partial",
            "meta",
            "as",
            "of",
            "for",
            "entries",
            "times",
            "every",
            "expect",
            "note",
            "limits",
            "ttl",
            "timeout",
            "priority",
            "waiting",
            "eventually",
        ];
        let names = step.as_object().ok_or("a step is a map")?;
        if let Some(name) = names.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("a step has no {name:?}"));
        }
        if let Some(at) = step.get("at") {
            let at = at.as_i64().ok_or("at is whole microseconds")?;
            self.set(self.start.checked_add_signed(at).ok_or("too early")?);
        }
        let number = |name: &str, default| step.get(name).map_or(Some(default), Value::as_u64).ok_or("a whole number");
        for _ in 1..number("times", 1)? {
            self.act(step["do"].as_str().unwrap_or_default(), step)?;
            self.set(self.model.now() + number("every", 0)?);
        }
        let expected = step.get("expect");
        let action = step["do"].as_str().ok_or("a step says what to do")?;
        let (found, modelled) = match self.act(action, step)? {
            // Rust cannot express this call, but other languages can.
            None => return Ok(()),
            Some(Ok(pair)) => pair,
            Some(Err(error)) => {
                let column = error.location().map(|place| place.column);
                (json!({ "error": error.code(), "column": column, "message": error.message() }), None)
            }
        };
        let nothing = json!({});
        let expected = expected.unwrap_or(&nothing);
        if found.get("error").is_some() && expected.get("error").is_none() {
            return Err(format!("failed: {found}"));
        }
        let wanted = without(expected, "says");
        if let Some(words) = expected.get("says").and_then(Value::as_str)
            && !found["message"].as_str().is_some_and(|message| message.contains(words))
        {
            return Err(format!("the error does not say {words:?}: {found}"));
        }
        if !includes(&found, &wanted) {
            return Err(format!("expected {wanted}\nsaid     {found}\nmodel    {}", modelled.unwrap_or(Value::Null)));
        }
        match modelled {
            Some(modelled) if !includes(&modelled, &wanted) => {
                Err(format!("the vector is wrong: the model says {modelled}"))
            }
            Some(modelled) if modelled != found => Err(format!("said  {found}\nmodel {modelled}")),
            _ => Ok(()),
        }
    }
}

impl Drop for Run {
    /// Ends the calls that still wait after a case has failed.
    fn drop(&mut self) {
        self.limiter.close();
    }
}

fn without(value: &Value, name: &str) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.remove(name);
    }
    value
}
