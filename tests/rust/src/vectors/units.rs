//! The calls of a case whose policies count units. The model knows one cost for all limits: it runs none of these cases, and the vectors
//! say every number.

use serde_json::{Value, json};
use tidegate::{CheckOptions, Cost, Decision, HoldAnswer, Units};

use super::Mismatch;
use super::calls::{Outcome, text};
use super::run::{Run, UnitsOfCase};
use crate::any_limiter::AnyLimiter;
use crate::decision_values::DecisionValues;

/// A Decision as a vector writes it, with what only these cases say.
fn json_of(decision: &Decision) -> Value {
    let mut value = DecisionValues::of(decision).json();
    value["cost"] = decision.cost().into();
    for (index, limit) in decision.limits().enumerate() {
        value["limits"][index]["unit"] = limit.unit.map_or(Value::Null, |unit| unit.name().into());
        value["limits"][index]["cost"] = limit.cost.into();
    }
    let decisions: Vec<Value> = decision.decisions().iter().map(json_of).collect();
    value["decisions"] = decisions.into();
    value
}

/// A cost. `None` for what Rust cannot express.
fn cost_of(value: Option<&Value>) -> Option<Cost> {
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
    /// Runs a call on the limiter. `None` when Rust cannot express it.
    pub(super) fn act_units(&mut self, action: &str, step: &Value) -> Result<Option<Outcome>, Mismatch> {
        let Self { limiter, of_units: UnitsOfCase { named, holds, .. }, .. } = self;
        let name = step.get("policy").map_or(Some("p"), Value::as_str).ok_or("a policy is named")?;
        let key = step.get("key").map_or_else(|| Some(String::new()), text).ok_or("a key is a text")?;
        let Some(cost) = cost_of(step.get("cost")) else { return Ok(None) };
        let of = step.get("of").and_then(Value::as_str).unwrap_or_default();
        let label = step.get("as").and_then(Value::as_str);
        let mut keep = |decision: &Decision| {
            label.map(|label| named.insert(label.to_owned(), decision.clone()));
            (json_of(decision), None)
        };
        let nothing = |()| (json!({}), None);
        let priority = step["priority"].as_str().map(str::to_owned);
        let options = CheckOptions { partial: step["partial"] == true, priority, ..cost.clone().into() };
        Ok(Some(match action {
            "check" => limiter.check_with(name, &key, &options).map(|decision| keep(&decision)),
            "peek" => limiter.peek_with(name, &key, &options).map(|decision| keep(&decision)),
            "charge" => limiter.charge(name, &key, cost).map(|decision| keep(&decision)),
            "refund" => limiter.refund(name, &key, cost).map(|_| nothing(())),
            "settle" => limiter.settle(named.get(of).ok_or("no Decision has that name")?, cost).map(nothing),
            "clear" => limiter.clear(name, &key).map(nothing),
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
                    // The task that gives it back needs the runtime.
                    AnyLimiter::Async(_, runtime) => runtime.block_on(async { drop(hold) }),
                }
                Ok(nothing(()))
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
            _ => return Err(format!("a step cannot {action:?} units")),
        }))
    }
}
