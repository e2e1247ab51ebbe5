//! One key by hand: check, peek, charge, refund, clear, block and unblock.

use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;
use tidegate::{CheckOptions, Cost, Decision, Limiter, Policy};

use crate::decision_text::{as_json, cost as cost_text, details, headline, table};
use crate::key_options::KeyOptions;
use crate::store_options::{OnMemory, OpenStore, StoreOptions};
use crate::terminal::{BOLD, NAME, paint};
use crate::time_text::{self, length};
use crate::{Outcome, Output, Result};

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// The name of a policy of --policies, or a notation such as "20/minute; 5/3s"
    policy: String,
    /// The key: the user, address or other caller to limit
    key: String,
    #[command(flatten)]
    made: KeyOptions,
    #[command(flatten)]
    store: StoreOptions,
}

/// A key under which a policy counts, and a limiter on the store.
pub(crate) struct OpenKey {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
    pub(crate) key: String,
}

impl Key {
    pub(crate) fn open(&self, on_memory: OnMemory, output: &mut Output) -> Result<OpenKey> {
        let OpenStore { limiter, policy } = self.store.open(&self.policy, on_memory, output)?;
        let key = self.made.key(&self.key, &policy)?;
        Ok(OpenKey { limiter, policy, key })
    }

    pub(crate) fn clear(&self, output: &mut Output) -> Result<Outcome> {
        let open = self.open(OnMemory::Refuses, output)?;
        open.limiter.clear(&open.policy, &open.key)?;
        Ok(open.done("cleared", None, output))
    }

    pub(crate) fn unblock(&self, output: &mut Output) -> Result<Outcome> {
        let open = self.open(OnMemory::Refuses, output)?;
        open.limiter.unblock(&open.policy, &open.key)?;
        Ok(open.done("unblocked", None, output))
    }
}

impl OpenKey {
    /// Reports a call that answers with nothing but success.
    fn done(&self, what: &str, time: Option<Duration>, output: &mut Output) -> Outcome {
        if output.is_json() {
            let (name, value) = match time {
                Some(time) => (format!("{what}_for"), json!(time.as_secs_f64())),
                None => (what.to_owned(), json!(true)),
            };
            output.json(&json!({"done": what, "policy": self.policy.name(), "key": self.key, name: value}));
        } else {
            let time = time.map_or_else(String::new, |time| format!(" for {}", length(time)));
            output.line(format!("{}{time}  {}  {:?}", paint(BOLD, what), paint(NAME, self.policy.name()), self.key));
        }
        Outcome::Done
    }
}

#[derive(Debug, Args)]
#[command(after_help = "The exit code is 0 if the check is allowed, 1 if it is denied, and 2 after an error.

Examples:
  $ tidegate check \"20/minute; 5/3s\" alice
  $ tidegate check login alice --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate check login alice --policies tidegate.yaml --cost 3 --partial --json")]
pub(crate) struct Check {
    #[command(flatten)]
    key: Key,
    /// The units to consume
    #[arg(long, value_name = COST, default_value = "1", value_parser = cost)]
    cost: Cost,
    /// A text that the journal of the policy keeps with the attempt
    #[arg(long, value_name = "TEXT")]
    meta: Option<String>,
    /// Consume the units that are left, up to the cost
    #[arg(long)]
    partial: bool,
    /// The class of the call, one of the policy's priorities
    #[arg(long, value_name = "CLASS")]
    priority: Option<String>,
}

impl Check {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let OpenKey { limiter, policy, key } = self.key.open(OnMemory::Works, output)?;
        let meta = self.meta.as_ref().map(|meta| meta.clone().into_bytes());
        let options =
            CheckOptions { meta, partial: self.partial, priority: self.priority.clone(), ..self.cost.clone().into() };
        let decision = limiter.check_with(&policy, &key, &options)?;
        Ok(answered(&decision, &policy, output))
    }
}

/// Shows the answer to a check.
fn answered(decision: &Decision, policy: &Policy, output: &mut Output) -> Outcome {
    if output.is_json() {
        output.json(&as_json(decision, policy));
    } else {
        output.line(headline(decision));
        details(decision, policy).iter().for_each(|line| output.line(line));
    }
    if decision.allowed() { Outcome::Done } else { Outcome::Negative }
}

#[derive(Debug, Args)]
#[command(after_help = "The exit code is 0 if a check would be allowed, 1 if it would be denied, and 2 after an error.

Examples:
  $ tidegate peek login alice --policies tidegate.yaml
  $ tidegate peek \"20/minute; 5/3s\" alice --cost 5")]
pub(crate) struct Peek {
    #[command(flatten)]
    key: Key,
    /// The units to ask for
    #[arg(long, value_name = COST, default_value = "1", value_parser = cost)]
    cost: Cost,
    /// The class of the call, one of the policy's priorities
    #[arg(long, value_name = "CLASS")]
    priority: Option<String>,
}

impl Peek {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let OpenKey { limiter, policy, key } = self.key.open(OnMemory::Works, output)?;
        let decision = limiter.peek_with(
            &policy,
            &key,
            &CheckOptions { priority: self.priority.clone(), ..self.cost.clone().into() },
        )?;
        Ok(answered(&decision, &policy, output))
    }
}

/// The value of an option of units, as the help shows it.
const COST: &str = "N|UNIT=N,…";

/// Parses a number of units, or numbers by the names of units: `5`, `tokens=1200,cost=2`.
fn cost(text: &str) -> Result<Cost, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("{text:?} is not a whole number"));
    if !text.contains('=') {
        return number(text).map(Cost::from);
    }
    let named = |part: &str| {
        let (name, units) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not a unit with a number: write it as in tokens=1200"))?;
        Ok((name.trim().to_owned(), number(units)?))
    };
    text.split(',').map(named).collect::<Result<tidegate::Units, String>>().map(Cost::from)
}

/// Shows the units that are left after a charge or a refund.
fn changed(what: &str, decision: &Decision, open: &OpenKey, output: &mut Output) -> Result<Outcome> {
    let OpenKey { limiter, policy, .. } = open;
    if output.is_json() {
        output.json(&as_json(decision, policy));
        return Ok(Outcome::Done);
    }
    let what = format!("{what} {}", cost_text(decision));
    output.line(format!("{}  {}  {:?}", paint(BOLD, &what), paint(NAME, decision.policy()), decision.key()));
    // The waits of a charge are for its whole cost. The waits for one unit are more useful.
    let now = limiter.peek(policy, decision.key(), Cost::one_of_each(policy))?;
    table(&now, policy).iter().for_each(|line| output.line(line));
    Ok(Outcome::Done)
}

/// A key, and units as an argument or as an option.
#[derive(Debug, Args)]
pub(crate) struct KeyAndUnits {
    #[command(flatten)]
    key: Key,
    /// The number of units [default: 1]
    #[arg(value_name = "COST", value_parser = cost)]
    units: Option<Cost>,
    /// The same as an option
    #[arg(long, value_name = COST, conflicts_with = "units", value_parser = cost)]
    cost: Option<Cost>,
}

impl KeyAndUnits {
    fn count(&self) -> Cost {
        self.units.clone().or_else(|| self.cost.clone()).unwrap_or_else(|| Cost::from(1))
    }

    pub(crate) fn charge(&self, output: &mut Output) -> Result<Outcome> {
        let open = self.key.open(OnMemory::Works, output)?;
        let decision = open.limiter.charge(&open.policy, &open.key, self.count())?;
        changed("charged", &decision, &open, output)
    }

    pub(crate) fn refund(&self, output: &mut Output) -> Result<Outcome> {
        let open = self.key.open(OnMemory::Refuses, output)?;
        let decision = open.limiter.refund(&open.policy, &open.key, self.count())?;
        changed("refunded", &decision, &open, output)
    }
}

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("how long").required(true)),
    override_usage = "tidegate block [OPTIONS] <POLICY> <KEY> <TIME>",
    after_help = "Examples:
  $ tidegate block login mallory 10m --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate block \"20/minute\" 203.0.113.7 --for \"1 day\" --store redis://localhost:6379"
)]
pub(crate) struct Block {
    #[command(flatten)]
    key: Key,
    /// The length of the block: 10m, 1h, "1 day", or a number of seconds
    #[arg(value_name = "TIME", value_parser = time_text::parse, group = "how long")]
    time: Option<Duration>,
    /// The same as an option
    #[arg(long = "for", value_name = "TIME", value_parser = time_text::parse, group = "how long")]
    length: Option<Duration>,
}

impl Block {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let open = self.key.open(OnMemory::Refuses, output)?;
        let time = self.time.or(self.length).unwrap_or_default();
        open.limiter.block(&open.policy, &open.key, time)?;
        Ok(open.done("blocked", Some(time), output))
    }
}
