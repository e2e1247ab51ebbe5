//! Runs `tests/vectors`: behaviour as data, as `tests/vectors/README.md` describes it. Every step is done by a limiter
//! and by the model; a vector must be right for both, so a wrong vector is found as surely as a wrong rule.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::policy::Format;
use tidegate::{Builder, Decision, Error, Hold, HoldAnswer, ManualClock, Policy, PolicyFile};

use crate::any_limiter::{AnyLimiter, fresh_prefix};
use crate::decision_values::{DecisionValues, includes};
use crate::model::Model;

/// What a call said, in words of a step's `expect`, and what else it gave; or why it failed.
type Outcome = Result<(Value, Option<Value>), Error>;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");
/// 2024-01-01T00:00:00Z: a Monday, and the first moment of an hour, a day, a week, a month and a year.
const START: u64 = 1_704_067_200_000_000;
/// Keys in Redis end in real time, no earlier than a quarter of a second after their meaning by the clock that was given: a run
/// that took longer on a busy machine says nothing.
const SURE: Duration = Duration::from_millis(200);

/// A store, and how to talk to it.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The store's URL.
    pub store: String,
    /// Through `AsyncLimiter`.
    pub tasks: bool,
}

/// One case of a vector file.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file and the case.
    pub name: String,
    value: Value,
}

/// All cases of all files but those in `skipped`.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn cases(skipped: &[&str]) -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(FOLDER)
        .expect("tests/vectors is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            !name.ends_with(".schema.json") && !skipped.contains(&name)
        })
        .collect();
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Case> {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let text = std::fs::read_to_string(path).expect("a readable file");
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
    assert!(file["about"].is_string(), "{name}.json says what it is about");
    let cases = file["cases"].as_array().unwrap_or_else(|| panic!("{name}.json has cases"));
    cases
        .iter()
        .map(|case| Case { name: format!("{name}: {}", case["name"].as_str().expect("a name")), value: case.clone() })
        .collect()
}

/// Something that a step of a case did not say as expected.
pub type Mismatch = String;

impl Case {
    /// Runs it; the complaint says which step, what was expected and what was said.
    ///
    /// # Errors
    /// A complaint.
    pub fn run(&self, way: &Variant) -> Result<(), Mismatch> {
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let result = Run::new(self, way).and_then(|mut run| run.steps(&self.value));
            tries += 1;
            if result.is_ok() || began.elapsed() < SURE || tries == 10 {
                return result.map_err(|complaint| format!("{} over {way:?}: {complaint}", self.name));
            }
        }
    }
}

/// The policies of a case, or of a change: a map by name.
fn policies(value: &Value) -> Option<Value> {
    match (value.get("policy"), value.get("policies")) {
        (Some(policy), None) => Some(json!({ "p": policy })),
        (None, Some(policies)) => Some(policies.clone()),
        _ => None,
    }
}

/// A file that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-{}.json", fresh_prefix())))
    }

    fn write(&self, policies: &Value) -> String {
        let text = json!({ "policies": policies }).to_string();
        std::fs::write(&self.0, &text).expect("a temporary file");
        text
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// What a decision that a step named was about.
struct Named {
    decision: Decision,
    charged: u64,
    policy: String,
    key: String,
}

struct Run {
    start: u64,
    file: Scratch,
    policies: PolicyFile,
    clock: Arc<ManualClock>,
    limiter: AnyLimiter,
    model: Model,
    named: BTreeMap<String, Named>,
    /// By name: the hold, and the model's with its policy and key.
    holds: BTreeMap<String, (Hold, u64, String, String)>,
}

impl Run {
    fn new(case: &Case, way: &Variant) -> Result<Self, Mismatch> {
        let start = case.value.get("start").map_or(START, |start| start.as_u64().expect("start is a moment"));
        let file = Scratch::new();
        let text = file.write(&policies(&case.value).unwrap_or_else(|| json!({ "unused": "1/s" })));
        let clock = Arc::new(ManualClock::new(Duration::from_micros(start)));
        let told = |error: Error| format!("the limiter: {error}");
        let builder = Builder::from_file(&file.0).map_err(told)?.store(&way.store).prefix(fresh_prefix());
        let builder = builder.timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
        Ok(Self {
            start,
            policies: PolicyFile::parse(&text, Format::Json, None).map_err(told)?,
            file,
            clock,
            limiter: AnyLimiter::new(builder, way.tasks).map_err(told)?,
            model: Model::new(start),
            named: BTreeMap::new(),
            holds: BTreeMap::new(),
        })
    }

    fn steps(&mut self, case: &Value) -> Result<(), Mismatch> {
        let steps = case["steps"].as_array().ok_or("it has no steps")?;
        for (index, step) in steps.iter().enumerate() {
            self.step(step).map_err(|complaint| format!("step {}: {step}\n{complaint}", index + 1))?;
        }
        Ok(())
    }

    fn set(&mut self, now: u64) {
        self.clock.set(Duration::from_micros(now));
        self.model.set(now);
    }

    /// The policy of a name, or of a notation in place.
    fn policy(&self, name: &str) -> Result<Policy, Mismatch> {
        match self.policies.get(name) {
            Some(policy) => Ok(policy.clone()),
            None => Policy::parse(name).map_err(|error| format!("{name}: {error}")),
        }
    }

    fn step(&mut self, step: &Value) -> Result<(), Mismatch> {
        let known = [
            "at", "do", "policy", "policies", "key", "cost", "meta", "as", "of", "for", "entries", "times", "every",
            "expect", "note",
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
            // Only other languages can say this.
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

    /// What a limiter and the model say. `None`: nothing that Rust can express.
    fn act(&mut self, action: &str, step: &Value) -> Result<Option<Outcome>, Mismatch> {
        if action == "change" {
            let policies = policies(step).ok_or("a change has a policy or policies")?;
            let text = self.file.write(&policies);
            let result = self.limiter.reload();
            if result.is_ok() {
                self.policies = PolicyFile::parse(&text, Format::Json, None).map_err(|error| error.to_string())?;
            }
            return Ok(Some(result.map(|()| (json!({}), None))));
        }
        if action == "check_all" {
            return self.check_all(step).map(Some);
        }
        if let Some(of) = step.get("of").and_then(Value::as_str) {
            return self.after(action, of, step);
        }
        let name = step.get("policy").map_or(Some("p"), Value::as_str).ok_or("a policy is named")?.to_owned();
        let Some(key) = text(&step["key"]) else { return Ok(None) };
        let Some(cost) = step.get("cost").map_or(Some(1), Value::as_u64) else { return Ok(None) };
        let meta = step.get("meta").map(|meta| text(meta).ok_or("meta is a text")).transpose()?;
        let meta = meta.map(String::into_bytes);
        let length = || step["for"].as_u64().map(Duration::from_micros).ok_or("a block has a length");
        let decided = |decision: &Decision| DecisionValues::of(decision).json();
        // The model is only asked about what makes sense.
        let result = match action {
            "check" => match self.limiter.check(&*name, &key, cost, meta.clone()) {
                Err(error) => Err(error),
                Ok(decision) => {
                    let said = self.model.check(&self.policy(&name)?, &key, cost, meta.as_deref());
                    let found = decided(&decision);
                    if let Some(label) = step.get("as").and_then(Value::as_str) {
                        let charged = if said.allowed && !said.shadow { cost } else { 0 };
                        self.named.insert(label.to_owned(), Named { decision, charged, policy: name, key });
                    }
                    Ok((found, Some(said.json())))
                }
            },
            "peek" => match self.limiter.peek(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(decision) => {
                    Ok((decided(&decision), Some(self.model.peek(&self.policy(&name)?, &key, cost).json())))
                }
            },
            "hold" => match self.limiter.hold(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(hold) => {
                    let (said, number) = self.model.hold(&self.policy(&name)?, &key, cost);
                    match (hold, number) {
                        (HoldAnswer::Held(hold), Some(number)) => {
                            let found = decided(hold.decision());
                            let label = step["as"].as_str().ok_or("a hold has a name")?.to_owned();
                            self.holds.insert(label, (hold, number, name, key));
                            Ok((found, Some(said.json())))
                        }
                        (HoldAnswer::Denied(decision), None) => Ok((decided(&decision), Some(said.json()))),
                        (hold, _) => return Err(format!("said {hold:?}\nmodel {said:?}")),
                    }
                }
            },
            "charge" => match self.limiter.charge(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(_) => {
                    self.model.charge(&self.policy(&name)?, &key, cost);
                    Ok((json!({}), None))
                }
            },
            "refund" => match self.limiter.refund(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(_) => {
                    self.model.refund(&self.policy(&name)?, &key, cost);
                    Ok((json!({}), None))
                }
            },
            "block" => match self.limiter.block(&*name, &key, length()?) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.block(&self.policy(&name)?, &key, length()?.as_micros() as u64);
                    Ok((json!({}), None))
                }
            },
            "unblock" => match self.limiter.unblock(&*name, &key) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.block(&self.policy(&name)?, &key, 0);
                    Ok((json!({}), None))
                }
            },
            "clear" => match self.limiter.clear(&*name, &key) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.clear(&self.policy(&name)?, &key);
                    Ok((json!({}), None))
                }
            },
            "journal" => match self.limiter.journal(&*name, &key) {
                Err(error) => Err(error),
                Ok(attempts) => {
                    let line = |at: u64, allowed: bool, cost: u64, meta: Option<&Vec<u8>>| {
                        let meta = meta.map(|meta| String::from_utf8_lossy(meta).into_owned());
                        json!({ "at": at as i64 - self.start as i64, "allowed": allowed, "cost": cost, "meta": meta })
                    };
                    let said = attempts.iter().map(|one| line(one.at, one.allowed, one.cost, one.meta.as_ref()));
                    let modelled = self.model.journal(&self.policy(&name)?, &key);
                    let modelled = modelled.iter().map(|one| line(one.at, one.allowed, one.cost, one.meta.as_ref()));
                    Ok((
                        json!({ "attempts": said.collect::<Vec<_>>() }),
                        Some(json!({ "attempts": modelled.collect::<Vec<_>>() })),
                    ))
                }
            },
            _ => return Err(format!("a step cannot {action:?}")),
        };
        Ok(Some(result))
    }

    /// `settle` and `release`, which are about what an earlier step named.
    fn after(&mut self, action: &str, of: &str, step: &Value) -> Result<Option<Outcome>, Mismatch> {
        match action {
            "settle" => {
                let Some(actual) = step["cost"].as_u64() else { return Ok(None) };
                let named = self.named.get(of).ok_or("no check has that name")?;
                let result = self.limiter.settle(&named.decision, actual);
                if result.is_ok() {
                    let (policy, key, charged) = (self.policy(&named.policy)?, named.key.clone(), named.charged);
                    self.model.settle(&policy, &key, charged, actual);
                }
                Ok(Some(result.map(|()| (json!({}), None))))
            }
            "release" => {
                let (hold, number, policy, key) = self.holds.remove(of).ok_or("no hold has that name")?;
                match &self.limiter {
                    AnyLimiter::Blocking(_) => drop(hold),
                    // Whatever it needs to be given back must run as well.
                    AnyLimiter::Async(_, runtime) => runtime.block_on(async { drop(hold) }),
                }
                self.model.release(&self.policy(&policy)?, &key, number);
                Ok(Some(Ok((json!({}), None))))
            }
            _ => Err(format!("{action:?} is about nothing that was named")),
        }
    }

    fn check_all(&mut self, step: &Value) -> Result<Outcome, Mismatch> {
        let mut entries: Vec<(String, String, u64)> = Vec::new();
        for entry in step["entries"].as_array().ok_or("check_all has entries")? {
            let policy = entry["policy"].as_str().ok_or("an entry names a policy")?.to_owned();
            let key = text(&entry["key"]).ok_or("an entry has a key")?;
            entries.push((policy, key, entry.get("cost").map_or(Some(1), Value::as_u64).ok_or("an entry has a cost")?));
        }
        Ok(match self.limiter.check_all(&entries) {
            Err(error) => Err(error),
            Ok(decision) => {
                let policies: Vec<Policy> =
                    entries.iter().map(|(name, ..)| self.policy(name)).collect::<Result<_, _>>()?;
                let asked: Vec<(&Policy, &str, u64)> = policies
                    .iter()
                    .zip(&entries)
                    .map(|(policy, (_, key, cost))| (policy, key.as_str(), *cost))
                    .collect();
                Ok((DecisionValues::of(&decision).json(), Some(self.model.check_all(&asked).json())))
            }
        })
    }
}

fn without(value: &Value, name: &str) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.remove(name);
    }
    value
}

/// A text: written out, or as `{"repeat": "k", "times": 10000}`. `None` when it is something else.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => Some(value["repeat"].as_str()?.repeat(value["times"].as_u64()? as usize)),
        _ => None,
    }
}
