//! `tidegate journal`: the newest attempts of a policy and key, with the metadata from the callers.

use clap::Args;
use serde_json::{Value, json};
use tidegate::Attempt;
use tidegate_simulate::text::{escaped, number};

use super::key::{Key, OpenKey};
use crate::store_options::OnMemory;
use crate::terminal::{BAD, DIM, GOOD, paint};
use crate::time_text::moment;
use crate::{Outcome, Output, Result, invalid};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  $ tidegate journal login alice --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate journal login alice --policies tidegate.yaml --store redis://localhost:6379 --last 5

With --json, each attempt is a line, the oldest first. `simulate --trace FILE` reads this, so you can try other limits on it:
  $ tidegate journal login alice --policies tidegate.yaml --store redis://localhost:6379 --json")]
pub(crate) struct Journal {
    #[command(flatten)]
    key: Key,
    /// The most attempts to show
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

impl Journal {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let OpenKey { limiter, policy, key } = self.key.open(OnMemory::Refuses, output)?;
        if policy.options().journal == 0 {
            return Err(invalid(format!(
                "{:?} keeps no journal: give it one in the policy file, as in `journal: 100`, and name the file with \
                 --policies",
                policy.name()
            )));
        }
        let mut attempts = limiter.journal(&policy, &key)?;
        attempts.truncate(self.last.unwrap_or(usize::MAX));
        if output.is_json() {
            // A trace: `simulate` reads calls in the order of their times.
            for mut line in as_json(&attempts).into_iter().rev() {
                (line["policy"], line["key"]) = (policy.name().into(), key.clone().into());
                output.json_line(&line);
            }
            return Ok(Outcome::Done);
        }
        if attempts.is_empty() {
            output.line("no attempts");
        } else {
            output.line(paint(DIM, "  at (UTC)                 answer   cost  what the caller said"));
        }
        for attempt in &attempts {
            output.line(line(attempt, &format!("{:>4}", number(attempt.cost))));
        }
        Ok(Outcome::Done)
    }
}

/// An attempt for people. `cost` is its cost as text.
pub(crate) fn line(attempt: &Attempt, cost: &str) -> String {
    let answer = if attempt.allowed { paint(GOOD, "allowed") } else { paint(BAD, "denied ") };
    let said = metadata(attempt).unwrap_or_default();
    format!("  {}  {answer}  {cost}  {said}", moment(attempt.at)).trim_end().to_owned()
}

/// The caller's metadata for an attempt, as text that is safe on a terminal.
pub(crate) fn metadata(attempt: &Attempt) -> Option<String> {
    Some(escaped(&String::from_utf8_lossy(attempt.meta.as_deref()?)))
}

pub(crate) fn as_json(attempts: &[Attempt]) -> Vec<Value> {
    let one = |attempt: &Attempt| {
        let meta = attempt.meta.as_deref().map(String::from_utf8_lossy);
        json!({"at": attempt.at as f64 / 1e6, "allowed": attempt.allowed, "cost": attempt.cost, "meta": meta})
    };
    attempts.iter().map(one).collect()
}
