//! `tidegate override` and `tidegate overrides`: keys with other limits than their policy.

use std::time::{Duration, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use tidegate::KeyOverride;
use tidegate_simulate::text::escaped;

use super::key::{Key, OpenKey};
use crate::store_options::{OnMemory, OpenStore, StoreOptions};
use crate::terminal::{BOLD, DIM, NAME, paint};
use crate::time_text::{self, length, moment};
use crate::{Outcome, Output, Result};

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true)),
    override_usage = "tidegate override [OPTIONS] <POLICY> <KEY> <LIMITS>",
    after_help = "All processes use the new limits within a second. Used units stay used.

Examples:
  $ tidegate override login alice 90/minute --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate override \"20/minute\" alice 90/minute --ttl 1h --store redis://localhost:6379
  $ tidegate override \"20/minute\" internal none --store redis://localhost:6379
  $ tidegate override \"20/minute\" alice --remove --store redis://localhost:6379"
)]
pub(crate) struct Override {
    #[command(flatten)]
    key: Key,
    /// The limits of this key: a notation, or none
    #[arg(value_name = "LIMITS", group = "what")]
    limits: Option<String>,
    /// Give the key the limits of its policy again
    #[arg(long, group = "what")]
    remove: bool,
    /// The time until the override ends: 10m, 1h, "1 day", or a number of seconds [default: it stays until you remove it]
    #[arg(long, value_name = "TIME", value_parser = time_text::parse, conflicts_with = "remove")]
    ttl: Option<Duration>,
}

impl Override {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let OpenKey { limiter, policy, key } = self.key.open(OnMemory::Refuses, output)?;
        let own = self.limits.as_deref().map(KeyOverride::parse).transpose()?;
        limiter.set_override(&policy, &key, own.as_ref(), self.ttl)?;
        let shown = own.as_ref().map(ToString::to_string);
        if output.is_json() {
            let ttl = self.ttl.map(|ttl| ttl.as_secs_f64());
            let done = if own.is_some() { "overridden" } else { "removed" };
            output.json(&json!({"done": done, "policy": policy.name(), "key": key, "limits": shown, "ttl": ttl}));
            return Ok(Outcome::Done);
        }
        let about = format!("{}  {:?}", paint(NAME, policy.name()), key);
        output.line(match shown {
            None => format!("{}  {about}", paint(BOLD, "removed")),
            Some(limits) => {
                let time = self.ttl.map_or_else(String::new, |ttl| format!("  for {}", length(ttl)));
                format!("{}  {about}  {limits}{time}", paint(BOLD, "overridden"))
            }
        });
        Ok(Outcome::Done)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "The list has the overrides in the store, and not those of the policy file.

Examples:
  $ tidegate overrides login --policies tidegate.yaml --store redis://localhost:6379")]
pub(crate) struct Overrides {
    /// The name of a policy of --policies, or a notation such as "20/minute; 5/3s"
    policy: String,
    #[command(flatten)]
    store: StoreOptions,
}

impl Overrides {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let OpenStore { limiter, policy } = self.store.open(&self.policy, OnMemory::Refuses, output)?;
        let overrides = limiter.overrides(&policy)?;
        let ends = |at: std::time::SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
        if output.is_json() {
            let lines = overrides.iter().map(|own| {
                let expires_at = own.expires_at.map(|at| ends(at).as_secs_f64());
                json!({"key": own.key, "limits": own.limits, "expires_at": expires_at})
            });
            output.json(&Value::from(lines.collect::<Vec<_>>()));
            return Ok(Outcome::Done);
        }
        if overrides.is_empty() {
            output.line("no overrides");
        }
        for own in &overrides {
            let until = own.expires_at.map_or_else(String::new, |at| {
                paint(DIM, &format!("  until {} UTC", moment(ends(at).as_micros() as u64)))
            });
            output.line(format!("  {}  {}{until}", escaped(&own.key), own.limits));
        }
        Ok(Outcome::Done)
    }
}
