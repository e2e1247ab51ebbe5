//! A Decision for people and as JSON.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tidegate::{Algorithm, Decision, LimitState, Policy, Unit, host};
use tidegate_simulate::text::{columns, number, of_unit};

use crate::terminal::{BAD, BOLD, DIM, GOOD, NAME, WARN, paint};
use crate::time_text::{length, moment};

/// The fields of a Decision as JSON: times in seconds, moments in seconds since 1970, `null` for never.
pub(crate) fn as_json(decision: &Decision, policy: &Policy) -> Value {
    let policy = host::own_policy(decision).unwrap_or(policy);
    let limits: Vec<Value> = decision
        .limits()
        .zip(policy.limits())
        .map(|(state, limit)| {
            json!({
                "notation": limit.to_string(),
                "algorithm": state.algorithm.name(),
                "unit": state.unit.as_ref().map(tidegate::Unit::name),
                "cost": state.cost,
                "limit": state.limit,
                "period": state.period.micros() as f64 / 1e6,
                "remaining": state.remaining,
                "over": state.over,
                "retry_after": seconds_or_never(state.retry_after),
                "next_after": seconds_or_never(state.next_after),
                "reset_after": state.reset_after.as_secs_f64(),
                "exceeded": state.exceeded,
            })
        })
        .collect();
    let reset_at = decision.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "allowed": decision.allowed(),
        "policy": decision.policy(),
        "key": decision.key(),
        "cost": decision.cost(),
        "granted": decision.granted(),
        "limit": decision.limit(),
        "remaining": decision.remaining(),
        "retry_after": seconds_or_never(decision.retry_after()),
        "next_after": seconds_or_never(decision.next_after()),
        "reset_after": decision.reset_after().as_secs_f64(),
        "reset_at": reset_at.as_secs_f64(),
        "blocked_for": host::block_left(decision).map(|left| left.as_secs_f64()),
        "delay": decision.delay().as_secs_f64(),
        "source": decision.source().name(),
        "unavailable": decision.unavailable(),
        "shadow": decision.shadow(),
        "abnormal": decision.abnormal(),
        "overridden": decision.overridden(),
        "limits": limits,
    })
}

fn seconds_or_never(time: Option<Duration>) -> Value {
    time.map_or(Value::Null, |time| json!(time.as_secs_f64()))
}

/// `in 3 s`, `now`, `never`.
pub(crate) fn when(time: Option<Duration>) -> String {
    match time {
        Some(Duration::ZERO) => "now".to_owned(),
        Some(time) => format!("in {}", length(time)),
        None => "never".to_owned(),
    }
}

/// The first line about a check: the answer, the policy, the key.
pub(crate) fn headline(decision: &Decision) -> String {
    let answer = match (decision.allowed(), decision.shadow()) {
        (true, true) => paint(WARN, "allowed, shadow: a policy that enforces would deny"),
        (true, false) => paint(GOOD, "allowed"),
        (false, _) => paint(BAD, "denied"),
    };
    let cost = cost(decision);
    let cost = if cost == "1" { String::new() } else { format!("  cost {cost}") };
    format!("{answer}  {}  {:?}{cost}", paint(NAME, decision.policy()), decision.key())
}

/// The cost of the call, each unit once: `5`, `1 and 1,200 tokens`.
pub(crate) fn cost(decision: &Decision) -> String {
    let mut amounts: Vec<(Option<Unit>, u64)> = decision.limits().map(|state| (state.unit, state.cost)).collect();
    let mut seen: Vec<Option<Unit>> = Vec::new();
    amounts.retain(|(unit, _)| {
        let is_new = !seen.contains(unit);
        seen.push(unit.clone());
        is_new
    });
    if amounts.iter().all(|(unit, _)| unit.is_none()) {
        return number(decision.cost());
    }
    amounts.iter().map(|(unit, count)| of_unit(*count, unit.as_ref())).collect::<Vec<_>>().join(" and ")
}

/// The lines after the first one: when to try again, and a table of the limits.
pub(crate) fn details(decision: &Decision, policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    if decision.granted() > 0 && decision.granted() < decision.cost() {
        lines.push(format!("granted {} of {}", number(decision.granted()), number(decision.cost())));
    }
    if !decision.delay().is_zero() {
        lines.push(format!("go in {}", length(decision.delay())));
    }
    let block = blocked(decision);
    let is_blocked = block.is_some();
    lines.extend(block);
    if !decision.allowed() && !is_blocked {
        lines.push(match decision.retry_after() {
            Some(wait) => format!("admitted again in {}", paint(BOLD, &length(wait))),
            None => format!("never admitted: the cost of {} does not fit", cost(decision)),
        });
    }
    lines.extend(overridden(decision));
    lines.extend(table(decision, policy));
    lines
}

/// The override of the key, if its limits decided instead of those of the policy.
pub(crate) fn overridden(decision: &Decision) -> Option<String> {
    let text = host::override_text(decision)?;
    Some(if text == "none" { "overridden: this key has no limit".to_owned() } else { format!("overridden: {text}") })
}

/// The end of a block, and how long it still lasts.
pub(crate) fn blocked(decision: &Decision) -> Option<String> {
    let left = host::block_left(decision)?;
    let until = moment((decision.at() + left).as_micros() as u64);
    Some(format!("{} {until} UTC, for {}", paint(BAD, "blocked until"), paint(BOLD, &length(left))))
}

/// The number of callers in line for the key, and the wait of the first one.
pub(crate) fn waiting(decision: &Decision) -> Option<String> {
    let (callers, longest) = host::line(decision)?;
    let are =
        if callers == 1 { "a process waits" } else { &format!("{} processes or classes wait", number(callers as u64)) };
    Some(format!("{are} in line, the first for {}", paint(BOLD, &length(longest))))
}

/// A line for each limit.
pub(crate) fn table(decision: &Decision, policy: &Policy) -> Vec<String> {
    let policy = host::own_policy(decision).unwrap_or(policy);
    let mut rows = vec![["limit", "left", "next", "unused in", ""].map(str::to_owned)];
    rows.extend(decision.limits().zip(policy.limits()).map(|(state, limit)| {
        let left = format!("{} of {}", number(state.remaining), of_unit(state.limit, state.unit.as_ref()));
        [limit.to_string(), left, when(state.next_after), length(state.reset_after), remark(&state)]
    }));
    let mut lines: Vec<String> = columns(&rows).iter().map(|line| format!("  {line}")).collect();
    lines[0] = paint(DIM, &lines[0]);
    lines
}

/// The remarks after a limit's numbers.
fn remark(state: &LimitState) -> String {
    let mut remarks = Vec::new();
    if state.exceeded {
        remarks.push("refused".to_owned());
    }
    if state.over > 0 {
        remarks.push(format!("{} over", of_unit(state.over, state.unit.as_ref())));
    }
    if state.algorithm == Algorithm::Concurrency {
        remarks.push("in progress at the same time".to_owned());
    }
    remarks.join(", ")
}
