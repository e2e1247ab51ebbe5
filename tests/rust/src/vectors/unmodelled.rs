//! The calls of a case that counts units or has calls that wait. The model has one cost for all limits and no lines, so
//! it runs none of these cases, and the vectors give every number.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::{CheckOptions, Cost, Decision, HoldAnswer, Result, Units};

use super::Mismatch;
use super::calls::{Outcome, text};
use super::run::{Run, Unmodelled};
use super::waiting_calls::{Answered, PATIENCE, options_of};
use crate::any_limiter::AnyLimiter;
use crate::decision_values::{DecisionValues, includes};

/// The outcome of a call without an answer to compare.
fn nothing(result: Result<()>) -> Outcome {
    result.map(|()| (json!({}), None))
}

/// A Decision in the form that vectors use, with the fields that only these cases compare.
fn json_of(decision: &Decision, start: u64) -> Value {
    let mut value = DecisionValues::of(decision).json();
    value["at"] = (decision.at().as_micros() as i64 - start as i64).into();
    value["cost"] = decision.cost().into();
    for (index, limit) in decision.limits().enumerate() {
        value["limits"][index]["unit"] = limit.unit.map_or(Value::Null, |unit| unit.name().into());
        value["limits"][index]["cost"] = limit.cost.into();
    }
    let decisions: Vec<Value> = decision.decisions().iter().map(|entry| json_of(entry, start)).collect();
    value["decisions"] = decisions.into();
    value
}

/// A cost. `None` if Rust cannot express it.
pub(super) fn cost_of(value: Option<&Value>) -> Option<Cost> {
    match value {
        None => Some(1.into()),
        Some(Value::Object(units)) => {
            let units = units.iter().map(|(name, number)| Some((name.as_str(), number.as_u64()?)));
            Some(units.collect::<Option<Vec<_>>>()?.into_iter().collect::<Units>().into())
        }
        Some(number) => number.as_u64().map(Cost::from),
    }
}

impl Run {
    /// Runs a call on the limiter. `None` if Rust cannot express it.
    pub(super) fn act_unmodelled(
        &mut self,
        action: &str,
        step: &Value,
    ) -> std::result::Result<Option<Outcome>, Mismatch> {
        let of = step.get("of").and_then(Value::as_str).unwrap_or_default();
        match action {
            "await" => {
                let answer = self.answer_of(of)?;
                return Ok(Some(answer.map(|answered| self.keep(of, answered))));
            }
            "waits" => {
                self.see_unanswered(of)?;
                self.see_waiting(of, step)?;
                return Ok(Some(nothing(Ok(()))));
            }
            "cancel" => {
                self.cancel(of, step)?;
                return Ok(Some(nothing(Ok(()))));
            }
            "acquire" | "hold" if step.get("timeout").is_some() => {
                let answer = self.begin(action, step)?;
                let label = step["as"].as_str().unwrap_or_default();
                return Ok(Some(match answer {
                    Some(answer) => answer.map(|answered| self.keep(label, answered)),
                    None => nothing(Ok(())),
                }));
            }
            "peek" if step["eventually"] == true => return self.act_eventually(step).map(Some),
            _ => {}
        }
        if action == "journal" {
            let (name, key) = (step["policy"].as_str().unwrap_or("p"), text(&step["key"]).ok_or("a key is a text")?);
            return Ok(Some(self.limiter.journal(name, &key).map(|attempts| (self.attempts(&attempts), None))));
        }
        let start = self.start;
        let Self { limiter, unmodelled: Unmodelled { named, holds, .. }, .. } = self;
        let name = step.get("policy").map_or(Some("p"), Value::as_str).ok_or("a policy is named")?;
        let key = step.get("key").map_or_else(|| Some(String::new()), text).ok_or("a key is a text")?;
        let Some(options) = options_of(step) else { return Ok(None) };
        let cost = Cost::from(options.clone());
        let label = step.get("as").and_then(Value::as_str);
        let mut keep = |decision: &Decision| {
            label.map(|label| named.insert(label.to_owned(), decision.clone()));
            (json_of(decision, start), None)
        };
        Ok(Some(match action {
            "check" => limiter.check_with(name, &key, &options).map(|decision| keep(&decision)),
            "peek" => limiter.peek_with(name, &key, &options).map(|decision| keep(&decision)),
            "charge" => limiter.charge(name, &key, cost).map(|decision| keep(&decision)),
            "refund" => nothing(limiter.refund(name, &key, cost).map(drop)),
            "settle" => nothing(match (&*limiter, holds.get(of)) {
                (AnyLimiter::Async(_, runtime), Some(hold)) => runtime.block_on(hold.settle(cost)),
                _ => limiter.settle(named.get(of).ok_or("no Decision has that name")?, cost),
            }),
            "block" => {
                let length = step["for"].as_u64().map(Duration::from_micros).ok_or("a block has a length")?;
                nothing(limiter.block(name, &key, length))
            }
            "unblock" => nothing(limiter.unblock(name, &key)),
            "clear" => nothing(limiter.clear(name, &key)),
            "hold" => limiter.hold_with(name, &key, &options).map(|answer| {
                let said = keep(answer.decision());
                if let HoldAnswer::Held(hold) = answer {
                    holds.insert(label.unwrap_or_default().to_owned(), hold);
                }
                said
            }),
            "release" => {
                let hold = holds.remove(of).ok_or("no hold has that name")?;
                match limiter {
                    AnyLimiter::Blocking(_) => drop(hold),
                    // The task that releases the hold needs the runtime.
                    AnyLimiter::Async(_, runtime) => runtime.block_on(async { drop(hold) }),
                }
                nothing(Ok(()))
            }
            "check_all" => {
                let mut entries = Vec::new();
                for entry in step["entries"].as_array().ok_or("check_all has entries")? {
                    let policy = entry["policy"].as_str().ok_or("an entry names a policy")?;
                    let key = text(&entry["key"]).ok_or("an entry has a key")?;
                    let cost = cost_of(entry.get("cost")).ok_or("an entry has a cost")?;
                    let priority = entry["priority"].as_str().map(str::to_owned);
                    entries.push((policy, key, CheckOptions { priority, ..cost.into() }));
                }
                limiter.check_all_of(entries).map(|decision| keep(&decision))
            }
            _ => return Err(format!("a step cannot {action:?} in a case of units or waiting calls")),
        }))
    }

    /// Keeps the answer to a call under its name, and returns it in the form that vectors use.
    fn keep(&mut self, label: &str, answered: Answered) -> (Value, Option<Value>) {
        let decision = match answered {
            Answered::Decision(decision) => decision,
            Answered::Hold(answer) => {
                let decision = answer.decision().clone();
                if let Some(hold) = answer.held() {
                    self.unmodelled.holds.insert(label.to_owned(), hold);
                }
                decision
            }
        };
        let said = json_of(&decision, self.start);
        self.unmodelled.named.insert(label.to_owned(), decision);
        (said, None)
    }

    /// Peeks until the answer is the expected one, or until `PATIENCE` is over.
    fn act_eventually(&self, step: &Value) -> std::result::Result<Outcome, Mismatch> {
        let (name, key) = (step["policy"].as_str().unwrap_or("p"), text(&step["key"]).ok_or("a key is a text")?);
        let cost = cost_of(step.get("cost")).ok_or("a cost")?;
        let began = Instant::now();
        loop {
            let said =
                self.limiter.peek(name, &key, cost.clone()).map(|decision| (json_of(&decision, self.start), None));
            let is_expected = said.as_ref().is_ok_and(|(said, _)| includes(said, &step["expect"]));
            if is_expected || said.is_err() || began.elapsed() > PATIENCE {
                return Ok(said);
            }
            self.waiting.proceed();
        }
    }
}
