//! The values of a Decision as plain numbers, so that those of a limiter, of the model and of a vector can be compared.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::Decision;

/// The values of a Decision. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionValues {
    /// `Decision::allowed`.
    pub allowed: bool,
    /// True if an enforced policy would have denied.
    pub shadow: bool,
    /// True if a block that follows repeated denials refused.
    pub abnormal: bool,
    /// True if the key has other numbers than its policy.
    pub overridden: bool,
    /// True if a limit that the other side announced decided.
    pub learned: bool,
    /// Units that were consumed.
    pub granted: u64,
    /// The count of the limit that binds.
    pub limit: u64,
    /// The units left of the limit that binds.
    pub remaining: u64,
    /// `None` means never.
    pub retry_after: Option<u64>,
    /// The time until the same check would be admitted again. `None` means never.
    pub next_after: Option<u64>,
    /// The time until the limit that binds is as if unused.
    pub reset_after: u64,
    /// Only for a `leaky-bucket`.
    pub delay: u64,
    /// The limits, in the order of the policy.
    pub limits: Vec<LimitValues>,
    /// The entries of a `check_all`.
    pub decisions: Vec<DecisionValues>,
}

/// The values of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitValues {
    /// Its name in the notation.
    pub algorithm: String,
    /// The most units it ever admits at once.
    pub limit: u64,
    /// Its nominal length.
    pub period: u64,
    /// Units that it would admit now.
    pub remaining: u64,
    /// Units that were used beyond it.
    pub over: u64,
    /// `None` means never.
    pub retry_after: Option<u64>,
    /// The time until it would admit the cost. `None` means never.
    pub next_after: Option<u64>,
    /// The time until it is as if unused.
    pub reset_after: u64,
    /// True if it refused.
    pub exceeded: bool,
}

fn micros(length: Duration) -> u64 {
    assert_eq!(length.subsec_nanos() % 1_000, 0, "{length:?} is whole microseconds");
    u64::try_from(length.as_micros()).expect("below 2^53")
}

impl DecisionValues {
    /// The values of a limiter's Decision.
    ///
    /// # Panics
    /// When a time is not a whole number of microseconds, or `reset_at` is not `reset_after` from the time of the answer.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let reset_at = decision.reset_at().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let expected = if decision.reset_after().is_zero() { reset_at } else { decision.at() + decision.reset_after() };
        assert_eq!(reset_at, expected, "reset_at and reset_after are the same moment");
        Self {
            allowed: decision.allowed(),
            shadow: decision.shadow(),
            abnormal: decision.abnormal(),
            overridden: decision.overridden(),
            learned: decision.learned(),
            granted: decision.granted(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after: decision.retry_after().map(micros),
            next_after: decision.next_after().map(micros),
            reset_after: micros(decision.reset_after()),
            delay: micros(decision.delay()),
            limits: decision
                .limits()
                .map(|limit| LimitValues {
                    algorithm: limit.algorithm.name().to_owned(),
                    limit: limit.limit,
                    period: limit.period.micros(),
                    remaining: limit.remaining,
                    over: limit.over,
                    retry_after: limit.retry_after.map(micros),
                    next_after: limit.next_after.map(micros),
                    reset_after: micros(limit.reset_after),
                    exceeded: limit.exceeded,
                })
                .collect(),
            decisions: decision.decisions().iter().map(Self::of).collect(),
        }
    }

    /// Reads the values from the form of a vector. Returns `None` if a field is missing.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let limit = |limit: &Value| {
            Some(LimitValues {
                algorithm: limit["algorithm"].as_str()?.to_owned(),
                limit: limit["limit"].as_u64()?,
                period: limit["period"].as_u64()?,
                remaining: limit["remaining"].as_u64()?,
                over: limit["over"].as_u64()?,
                retry_after: limit["retry_after"].as_u64(),
                next_after: limit["next_after"].as_u64(),
                reset_after: limit["reset_after"].as_u64()?,
                exceeded: limit["exceeded"].as_bool()?,
            })
        };
        Some(Self {
            allowed: value["allowed"].as_bool()?,
            shadow: value["shadow"].as_bool()?,
            abnormal: value["abnormal"].as_bool().unwrap_or(false),
            overridden: value["overridden"].as_bool().unwrap_or(false),
            learned: value["learned"].as_bool().unwrap_or(false),
            granted: value["granted"].as_u64()?,
            limit: value["limit"].as_u64()?,
            remaining: value["remaining"].as_u64()?,
            retry_after: value["retry_after"].as_u64(),
            next_after: value["next_after"].as_u64(),
            reset_after: value["reset_after"].as_u64()?,
            delay: value["delay"].as_u64()?,
            limits: value["limits"].as_array()?.iter().map(limit).collect::<Option<_>>()?,
            decisions: value["decisions"].as_array()?.iter().map(Self::from_json).collect::<Option<_>>()?,
        })
    }

    /// The values in the form of a vector.
    #[must_use]
    pub fn json(&self) -> Value {
        let limits: Vec<Value> = self
            .limits
            .iter()
            .map(|limit| {
                json!({
                    "algorithm": limit.algorithm, "limit": limit.limit, "period": limit.period,
                    "remaining": limit.remaining, "over": limit.over, "retry_after": limit.retry_after,
                    "next_after": limit.next_after, "reset_after": limit.reset_after, "exceeded": limit.exceeded,
                })
            })
            .collect();
        json!({
            "allowed": self.allowed, "shadow": self.shadow, "abnormal": self.abnormal, "overridden": self.overridden, "learned": self.learned, "granted": self.granted, "limit": self.limit,
            "remaining": self.remaining, "retry_after": self.retry_after, "next_after": self.next_after,
            "reset_after": self.reset_after, "delay": self.delay,
            "limits": limits, "decisions": self.decisions.iter().map(Self::json).collect::<Vec<_>>(),
        })
    }
}

/// True if a value is the expected one, except that its maps may hold more.
#[must_use]
pub fn includes(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| includes(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| includes(found, expected))
        }
        (found, expected) => found == expected,
    }
}
