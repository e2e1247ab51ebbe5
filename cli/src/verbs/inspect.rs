//! `tidegate inspect`: shows everything that is known about a key, without changing it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate::{Attempt, CheckOptions, Cost, Decision, LimitState, Limiter, Policy, host};
use tidegate_simulate::text::{number, of_unit, within};

use super::journal;
use crate::classes::{self, PolicyClass};
use crate::decision_text::{as_json, blocked, overridden, waiting, when};
use crate::key_options::KeyOptions;
use crate::store_options::{OnMemory, OpenStore, StoreOptions};
use crate::terminal::{BAD, BOLD, DIM, GOOD, NAME, WARN, bar, paint, width};
use crate::time_text::length;
use crate::{Outcome, Output, Result, invalid};

/// The columns of a limit's bar, and the most callers and attempts to list.
const BAR: usize = 24;
const CALLERS: usize = 10;
const ATTEMPTS: usize = 5;

#[derive(Debug, Args)]
#[command(
    after_help = "The verb consumes nothing. For a policy with a `journal` it also shows the callers behind the key, from the \
        metadata that they gave.

Examples:
  $ tidegate inspect login alice --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate inspect \"20/minute; 5/3s\" 203.0.113.7 --store redis://localhost:6379 --json

A key from a header, and a key of a notation in the code of a route:
  $ tidegate inspect 5/minute --header X-API-Key k-123 --store redis://localhost:6379
  $ tidegate inspect 5/minute 203.0.113.7 --place search --store redis://localhost:6379

Why is this customer limited? This shows every policy of the file, and those that refuse come first:
  $ tidegate inspect --key alice --policies tidegate.yaml --store redis://localhost:6379"
)]
pub(crate) struct Inspect {
    /// The name of a policy of --policies, or a notation
    #[arg(required_unless_present = "all_of")]
    policy: Option<String>,
    /// The key: the user, address or other caller to limit
    #[arg(required_unless_present = "all_of", value_name = "KEY")]
    named: Option<String>,
    /// Show this key in every policy of --policies
    #[arg(long = "key", value_name = "KEY", conflicts_with_all = ["policy", "named"])]
    all_of: Option<String>,
    #[command(flatten)]
    made: KeyOptions,
    #[command(flatten)]
    store: StoreOptions,
}

/// A summary of the attempts with the same metadata.
#[derive(Serialize)]
struct CallerCount {
    meta: Option<String>,
    attempts: usize,
    denied: usize,
    /// In seconds since 1970.
    newest: f64,
}

impl Inspect {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        if let Some(key) = &self.all_of {
            return self.all(key, output);
        }
        let (policy, named) = (self.policy.as_deref().unwrap_or_default(), self.named.as_deref().unwrap_or_default());
        let OpenStore { limiter, policy } = self.store.open(policy, OnMemory::Refuses, output)?;
        let key = &self.made.key(named, &policy)?;
        let decision = limiter.peek(&policy, key, Cost::one_of_each(&policy))?;
        let classes = class_answers(&limiter, &policy, key)?;
        let attempts = limiter.journal(&policy, key)?;
        let callers = callers(&attempts);
        if output.is_json() {
            output.json(&json!({
                "decision": as_json(&decision, &policy),
                "classes": classes_as_json(&classes, &decision, &policy),
                "blocked_for": host::block_left(&decision).map(|left| left.as_secs_f64()),
                "line": host::line(&decision).map(|(callers, longest)| json!({"callers": callers, "longest": longest.as_secs_f64()})),
                "other_limits": host::other_limits(&decision),
                "journal": journal::as_json(&attempts),
                "callers": callers,
            }));
        } else {
            show(&decision, &policy, &classes, output);
            show_journal(&policy, &attempts, &callers, output);
        }
        Ok(Outcome::Done)
    }

    /// Shows every policy of the file: those that refuse the key first, then those that it has used.
    fn all(&self, named: &str, output: &mut Output) -> Result<Outcome> {
        let file = self.store.policies.read()?.ok_or_else(|| {
            invalid("--key shows every policy of a file: name the file with --policies, or a policy before the key")
        })?;
        let mut found = Vec::new();
        for policy in file.policies() {
            let OpenStore { limiter, policy } = self.store.open(policy.name(), OnMemory::Refuses, output)?;
            let key = &self.made.key(named, &policy)?;
            let classes = class_answers(&limiter, &policy, key)?;
            found.push((limiter.peek(&policy, key, Cost::one_of_each(&policy))?, classes, policy));
        }
        let wait = |decision: &Decision| decision.next_after().unwrap_or(Duration::MAX);
        found.sort_by_key(|(decision, ..)| Reverse((wait(decision), decision.reset_after())));
        if output.is_json() {
            let policies = found.iter().map(|(decision, classes, policy)| {
                let mut policy_json = as_json(decision, policy);
                policy_json["classes"] = classes_as_json(classes, decision, policy);
                policy_json
            });
            output.json(&json!({"key": found.first().map_or(named, |(decision, ..)| decision.key()), "policies": policies.collect::<Vec<_>>()}));
            return Ok(Outcome::Done);
        }
        for (index, (decision, classes, policy)) in found.iter().enumerate() {
            if index > 0 {
                output.line("");
            }
            show(decision, policy, classes, output);
        }
        Ok(Outcome::Done)
    }
}

/// The answer that each class of a policy would get for a key, in the order of the classes.
fn class_answers(limiter: &Limiter, policy: &Policy, key: &str) -> Result<Vec<Decision>> {
    let ask = |class: PolicyClass<'_>| {
        let options = CheckOptions { priority: Some(class.name.to_owned()), ..Cost::one_of_each(policy).into() };
        limiter.peek_with(policy, key, &options)
    };
    classes::of_policy(policy).into_iter().map(ask).collect()
}

/// The classes, with the numbers of the key. Empty for a key without limits.
fn classes_with_answers<'a>(
    answers: &'a [Decision],
    decision: &Decision,
    own: &'a Policy,
) -> impl Iterator<Item = (PolicyClass<'a>, &'a Decision)> {
    let is_limited = host::override_text(decision).is_none_or(|text| text != "none");
    classes::of_policy(own).into_iter().zip(answers).filter(move |_| is_limited)
}

fn classes_as_json(answers: &[Decision], decision: &Decision, policy: &Policy) -> Value {
    let own = host::own_policy(decision).unwrap_or(policy);
    let of_class = |(class, answer): (PolicyClass<'_>, &Decision)| {
        let mut json = class.as_json(own);
        json["remaining"] = answer.limits().map(|state| state.remaining).collect::<Vec<_>>().into();
        json["next_after"] = answer.next_after().map(|wait| wait.as_secs_f64()).into();
        json
    };
    classes_with_answers(answers, decision, own).map(of_class).collect()
}

fn show(decision: &Decision, policy: &Policy, answers: &[Decision], output: &mut Output) {
    output.line(format!("{}  {:?}", paint(NAME, policy.name()), decision.key()));
    if let Some(overridden) = overridden(decision) {
        output.line(overridden);
    }
    if let Some(blocked) = blocked(decision) {
        output.line(blocked);
    }
    if let Some(waiting) = waiting(decision) {
        output.line(waiting);
    }
    let answer = match (decision.next_after(), decision.shadow()) {
        (_, true) => paint(WARN, "a check is allowed, because the policy is a shadow"),
        (Some(Duration::ZERO), _) => paint(GOOD, "a check is admitted now"),
        (Some(wait), _) => format!("{} in {}", paint(BAD, "a check is denied, and admitted"), length(wait)),
        (None, _) => paint(BAD, "a check is never admitted"),
    };
    output.line(answer);
    output.line("");
    // An override has its own limits.
    let own = host::own_policy(decision).unwrap_or(policy);
    let names: Vec<String> = own.limits().iter().map(ToString::to_string).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (state, name) in decision.limits().zip(&names) {
        output.line(limit_line(&state, &format!("{name:<widest$}")));
    }
    for (class, answer) in classes_with_answers(answers, decision, own) {
        let left: Vec<u64> = answer.limits().map(|state| state.remaining).collect();
        output.line(format!(
            "  {} leaves {} free: {} left for it, next {}",
            paint(BOLD, class.name),
            classes::numbers(own, &class.free),
            classes::numbers(own, &left),
            when(answer.next_after()),
        ));
    }
    let others = host::other_limits(decision);
    if !others.is_empty() {
        output.line(paint(WARN, &format!("  Another release counts this key too, by {}.", others.join("; "))));
    }
}

/// One limit: a bar of the used units, the numbers, and the time until it is as if unused.
fn limit_line(state: &LimitState, name: &str) -> String {
    let used = state.limit.saturating_sub(state.remaining) + state.over;
    let share = if state.limit == 0 { 1.0 } else { used as f64 / state.limit as f64 };
    let style = match share {
        1.0.. => BAD,
        0.8.. => WARN,
        _ => GOOD,
    };
    let over =
        if state.over > 0 { format!(", {} over", of_unit(state.over, state.unit.as_ref())) } else { String::new() };
    let reset = if state.reset_after.is_zero() {
        "unused".to_owned()
    } else {
        format!("unused in {}", length(state.reset_after))
    };
    let next = when(state.next_after);
    format!(
        "  {name}  {}  {} of {} used{over}, next {next}, {reset}",
        paint(style, &bar(share, BAR)),
        number(used),
        of_unit(state.limit, state.unit.as_ref()),
    )
}

/// The callers behind the key: the attempts by metadata, the most first.
fn callers(attempts: &[Attempt]) -> Vec<CallerCount> {
    let mut index: HashMap<Option<String>, usize> = HashMap::new();
    let mut callers: Vec<CallerCount> = Vec::new();
    for attempt in attempts {
        let meta = journal::metadata(attempt);
        let at = *index.entry(meta.clone()).or_insert_with(|| {
            callers.push(CallerCount { meta, attempts: 0, denied: 0, newest: 0.0 });
            callers.len() - 1
        });
        let caller = &mut callers[at];
        caller.attempts += 1;
        caller.denied += usize::from(!attempt.allowed);
        caller.newest = caller.newest.max(attempt.at as f64 / 1e6);
    }
    callers.sort_by(|a, b| b.attempts.cmp(&a.attempts).then(b.newest.total_cmp(&a.newest)));
    callers
}

fn show_journal(policy: &Policy, attempts: &[Attempt], callers: &[CallerCount], output: &mut Output) {
    output.line("");
    if policy.options().journal == 0 {
        let advice = "No journal: with `journal: 100` in the policy file, the newest attempts are shown here.";
        return output.line(paint(DIM, advice));
    }
    if attempts.is_empty() {
        return output.line("The journal is empty.");
    }
    output.line(paint(BOLD, &format!("Behind this key, of the newest {} attempts", number(attempts.len() as u64))));
    let room = width().saturating_sub(36).max(20);
    for caller in callers.iter().take(CALLERS) {
        let name = within(caller.meta.as_deref().unwrap_or("(nothing was said)"), room);
        let attempts = if caller.attempts == 1 { "attempt " } else { "attempts" };
        output.line(format!("  {:>6} {attempts}  {:>6} denied  {name}", caller.attempts, caller.denied));
    }
    if callers.len() > CALLERS {
        output.line(paint(DIM, &format!("  and {} more; --json has all", callers.len() - CALLERS)));
    }
    output.line("");
    output.line(paint(BOLD, "Newest attempts"));
    for attempt in attempts.iter().take(ATTEMPTS) {
        output.line(journal::line(attempt, &format!("cost {}", number(attempt.cost))));
    }
}
