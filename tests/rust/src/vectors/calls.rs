//! The calls of a step, on the limiter and on the model.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::Format;
use tidegate::{Attempt, CheckOptions, Decision, Error, HoldAnswer, KeyOverride, Policy, PolicyFile};

use super::Mismatch;
use super::run::{NamedDecision, Run, policies};
use crate::any_limiter::AnyLimiter;
use crate::decision_values::DecisionValues;
use crate::model::Model;

/// The answers of the limiter and of the model, in the form of `expect` in a step, or the error of the call. The model
/// has `None` if there is no answer to compare.
pub(super) type Outcome = Result<(Value, Option<Value>), Error>;

impl Run {
    /// Runs a call on the limiter and on the model. `None` when Rust cannot express the call.
    pub(super) fn act(&mut self, action: &str, step: &Value) -> Result<Option<Outcome>, Mismatch> {
        if action == "change" {
            let policies = policies(step).ok_or("a change has a policy or policies")?;
            let text = self.file.write(&policies);
            let result = self.limiter.reload();
            if result.is_ok() {
                self.policies = PolicyFile::parse(&text, Format::Json, None).map_err(|error| error.to_string())?;
            }
            return Ok(Some(result.map(|()| (json!({}), None))));
        }
        if action == "override" {
            let Some(key) = text(&step["key"]) else { return Ok(None) };
            let name = step["policy"].as_str().unwrap_or("p").to_owned();
            return Ok(Some(self.set_override(name, key, step).map(|()| (json!({}), None))));
        }
        if self.unmodelled.is_so {
            return self.act_unmodelled(action, step);
        }
        if action == "check_all" {
            return self.check_all(step).map(Some);
        }
        if let Some(of) = step.get("of").and_then(Value::as_str) {
            return self.follow_up(action, of, step);
        }
        let name = step.get("policy").map_or(Some("p"), Value::as_str).ok_or("a policy is named")?.to_owned();
        let Some(key) = text(&step["key"]) else { return Ok(None) };
        let (own, overridden) = match self.policy_of(&name, &key) {
            Ok((Some(policy), overridden)) => (Some(policy), overridden),
            Ok((None, overridden)) => (None, overridden),
            // The limiter returns the error.
            Err(_) => (None, false),
        };
        let Some(cost) = step.get("cost").map_or(Some(1), Value::as_u64) else { return Ok(None) };
        let meta = step.get("meta").map(|meta| text(meta).ok_or("meta is a text")).transpose()?;
        let meta = meta.map(String::into_bytes);
        let length = || step["for"].as_u64().map(Duration::from_micros).ok_or("a block has a length");
        let (class, partial) = (step["priority"].as_str(), step["partial"] == true);
        let options =
            CheckOptions { cost, meta: meta.clone(), priority: class.map(str::to_owned), ..CheckOptions::default() };
        self.model.of_class(class);
        let decided = |decision: &Decision| DecisionValues::of(decision).json();
        // The model runs only calls that the limiter accepts.
        let Some(policy) = own.as_ref() else { return self.act_without_model(action, &name, &key, &options).map(Some) };
        let of_key = |said: DecisionValues| DecisionValues { overridden, ..said }.json();
        let result = match action {
            "check" => match self.limiter.check_with(&*name, &key, &CheckOptions { partial, ..options }) {
                Err(error) => Err(error),
                Ok(decision) => {
                    let ask = if partial { Model::take } else { Model::check };
                    let said = ask(&mut self.model, policy, &key, cost, meta.as_deref());
                    let found = decided(&decision);
                    if let Some(label) = step.get("as").and_then(Value::as_str) {
                        let charged = said.granted;
                        self.named.insert(
                            label.to_owned(),
                            NamedDecision { decision, charged, receipt: self.model.receipt(), policy: name, key },
                        );
                    }
                    Ok((found, Some(of_key(said))))
                }
            },
            "peek" => match self.limiter.peek_with(&*name, &key, &options) {
                Err(error) => Err(error),
                Ok(decision) => Ok((decided(&decision), Some(of_key(self.model.peek(policy, &key, cost))))),
            },
            "hold" => match self.limiter.hold_with(&*name, &key, &options) {
                Err(error) => Err(error),
                Ok(hold) => {
                    let (said, number) = self.model.hold(policy, &key, cost);
                    match (hold, number) {
                        (HoldAnswer::Held(hold), Some(number)) => {
                            let found = decided(hold.decision());
                            let label = step["as"].as_str().ok_or("a hold has a name")?.to_owned();
                            self.holds.insert(label, (hold, number, name, key));
                            Ok((found, Some(of_key(said))))
                        }
                        (HoldAnswer::Denied(decision), None) => Ok((decided(&decision), Some(of_key(said)))),
                        (hold, _) => return Err(format!("said {hold:?}\nmodel {said:?}")),
                    }
                }
            },
            "charge" => match self.limiter.charge(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(_) => {
                    self.model.charge(policy, &key, cost);
                    Ok((json!({}), None))
                }
            },
            "refund" => match self.limiter.refund(&*name, &key, cost) {
                Err(error) => Err(error),
                Ok(_) => {
                    self.model.refund(policy, &key, cost);
                    Ok((json!({}), None))
                }
            },
            "block" => match self.limiter.block(&*name, &key, length()?) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.block(policy, &key, length()?.as_micros() as u64);
                    Ok((json!({}), None))
                }
            },
            "unblock" => match self.limiter.unblock(&*name, &key) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.block(policy, &key, 0);
                    Ok((json!({}), None))
                }
            },
            "clear" => match self.limiter.clear(&*name, &key) {
                Err(error) => Err(error),
                Ok(()) => {
                    self.model.clear(policy, &key);
                    Ok((json!({}), None))
                }
            },
            "journal" => match self.limiter.journal(&*name, &key) {
                Err(error) => Err(error),
                Ok(attempts) => {
                    let modelled = self.model.journal(policy, &key);
                    let modelled =
                        modelled.iter().map(|one| self.attempt(one.at, one.allowed, one.cost, one.meta.as_ref()));
                    let modelled = json!({ "attempts": modelled.collect::<Vec<_>>() });
                    Ok((self.attempts(&attempts), Some(modelled)))
                }
            },
            _ => return Err(format!("a step cannot {action:?}")),
        };
        Ok(Some(result))
    }

    /// An attempt of a journal, in the form that vectors use.
    fn attempt(&self, at: u64, allowed: bool, cost: u64, meta: Option<&Vec<u8>>) -> Value {
        let meta = meta.map(|meta| String::from_utf8_lossy(meta).into_owned());
        json!({ "at": at as i64 - self.start as i64, "allowed": allowed, "cost": cost, "meta": meta })
    }

    /// A journal, in the form that vectors use.
    pub(super) fn attempts(&self, attempts: &[Attempt]) -> Value {
        let said = attempts.iter().map(|one| self.attempt(one.at, one.allowed, one.cost, one.meta.as_ref()));
        json!({ "attempts": said.collect::<Vec<_>>() })
    }

    /// Sets the override of a key, or removes it.
    fn set_override(&mut self, name: String, key: String, step: &Value) -> Result<(), Error> {
        let own = step["limits"].as_str().map(KeyOverride::parse).transpose()?;
        let ttl = step["ttl"].as_u64();
        self.limiter.set_override(&*name, &key, own.as_ref(), ttl.map(Duration::from_micros))?;
        let ends = ttl.map_or(u64::MAX, |ttl| self.model.now() + ttl);
        let (about, is_set) = ((name.clone(), key.clone()), own.is_some());
        let before = match own {
            Some(own) => self.own.insert(about, (own, ends)),
            None => self.own.remove(&about),
        };
        if is_set || before.is_some_and(|(_, ends)| ends > self.model.now()) {
            let policy = self.policy_of(&name, &key).ok().and_then(|(own, _)| own).or_else(|| self.policy(&name).ok());
            policy.inspect(|policy| self.model.adopt(policy, &key));
        }
        Ok(())
    }

    /// Runs a call without the model: the key has no limits, or the policy does not exist.
    fn act_without_model(
        &mut self,
        action: &str,
        name: &str,
        key: &str,
        options: &CheckOptions,
    ) -> Result<Outcome, Mismatch> {
        let decided = |decision: Decision| (DecisionValues::of(&decision).json(), None);
        Ok(match action {
            "check" => self.limiter.check_with(name, key, options).map(decided),
            "peek" => self.limiter.peek_with(name, key, options).map(decided),
            "charge" => self.limiter.charge(name, key, options.cost).map(|_| (json!({}), None)),
            "refund" => self.limiter.refund(name, key, options.cost).map(|_| (json!({}), None)),
            "hold" => self.limiter.hold_with(name, key, options).map(|hold| decided(hold.decision().clone())),
            "block" => self.limiter.block(name, key, Duration::from_secs(1)).map(|()| (json!({}), None)),
            "unblock" => self.limiter.unblock(name, key).map(|()| (json!({}), None)),
            "clear" => self.limiter.clear(name, key).map(|()| (json!({}), None)),
            "journal" => self.limiter.journal(name, key).map(|_| (json!({}), None)),
            _ => return Err(format!("a key without limits cannot {action:?}")),
        })
    }

    /// `settle` and `release`, which refer to a decision or a hold that an earlier step named.
    fn follow_up(&mut self, action: &str, of: &str, step: &Value) -> Result<Option<Outcome>, Mismatch> {
        match action {
            "settle" => {
                let Some(actual) = step["cost"].as_u64() else { return Ok(None) };
                let named = self.named.get(of).ok_or("no check has that name")?;
                let result = self.limiter.settle(&named.decision, actual);
                if result.is_ok() {
                    let (policy, key, charged) = (self.policy(&named.policy)?, named.key.clone(), named.charged);
                    let receipt = named.receipt.clone();
                    self.model.settle(&policy, &key, charged, actual, &receipt);
                }
                Ok(Some(result.map(|()| (json!({}), None))))
            }
            "release" => {
                let (hold, number, policy, key) = self.holds.remove(of).ok_or("no hold has that name")?;
                match &self.limiter {
                    AnyLimiter::Blocking(_) => drop(hold),
                    // The task that releases the hold needs the runtime.
                    AnyLimiter::Async(_, runtime) => runtime.block_on(async { drop(hold) }),
                }
                self.model.release(&self.policy(&policy)?, &key, number);
                Ok(Some(Ok((json!({}), None))))
            }
            _ => Err(format!("{action:?} refers to nothing that a step named")),
        }
    }

    fn check_all(&mut self, step: &Value) -> Result<Outcome, Mismatch> {
        let mut entries: Vec<(&str, String, CheckOptions)> = Vec::new();
        for entry in step["entries"].as_array().ok_or("check_all has entries")? {
            let policy = entry["policy"].as_str().ok_or("an entry names a policy")?;
            let key = text(&entry["key"]).ok_or("an entry has a key")?;
            let cost = entry.get("cost").map_or(Some(1), Value::as_u64).ok_or("an entry has a cost")?;
            let priority = entry["priority"].as_str().map(str::to_owned);
            entries.push((policy, key, CheckOptions { cost, priority, ..CheckOptions::default() }));
        }
        Ok(match self.limiter.check_all_of(entries.clone()) {
            Err(error) => Err(error),
            // The model gets the policies without overrides, so it cannot answer for an entry that has one.
            Ok(decision) if decision.decisions().iter().any(Decision::overridden) => {
                Ok((DecisionValues::of(&decision).json(), None))
            }
            Ok(decision) => {
                let policies: Vec<Policy> =
                    entries.iter().map(|(name, ..)| self.policy(name)).collect::<Result<_, _>>()?;
                let asked: Vec<(&Policy, &str, u64, Option<&str>)> = policies
                    .iter()
                    .zip(&entries)
                    .map(|(policy, (_, key, options))| {
                        (policy, key.as_str(), options.cost, options.priority.as_deref())
                    })
                    .collect();
                Ok((DecisionValues::of(&decision).json(), Some(self.model.check_all_of(&asked).json())))
            }
        })
    }
}

/// A text, written out or as `{"repeat": "k", "times": 10000}`. `None` if it is something else.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => Some(value["repeat"].as_str()?.repeat(value["times"].as_u64()? as usize)),
        _ => None,
    }
}
