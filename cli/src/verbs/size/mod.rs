//! `tidegate size`: the servers, cores and memory that traffic takes.

mod costs;
mod measured;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tidegate::Policy;

use crate::number_text::bytes;
use crate::store_options::StoreOptions;
use crate::terminal::{BOLD, DIM, NAME, paint, width, wrapped};
use crate::{Outcome, Output, Result, invalid, number_text, policy_argument};
use costs::Costs;
use tidegate_simulate::text::{escaped, number};

/// How busy the core that runs a server's commands may be, so that calls do not queue.
const BUSY: f64 = 0.6;
/// The factor for the further memory of the allocator and of the buffers of clients and replicas.
const MEMORY_MARGIN: f64 = 1.3;

#[derive(Debug, Args)]
#[command(
    after_help = "Each check asks every POLICY, and each policy has this number of keys. With --store, the verb measures the \
        costs there for two seconds, on temporary keys that it removes. Without it, it uses figures that this project has \
        measured.

Examples:
  $ tidegate size --rate 1M/s --keys 50M \"gcra 100/s burst 200\"
  $ tidegate size --rate 30k/s --keys 2M \"20/minute; 5/3s\" \"1000/day\" --json
  $ tidegate size --rate 200k/s --keys 5M \"20/minute\" --store redis://localhost:6379"
)]
pub(crate) struct Size {
    /// The rate of checks: 1M/s, 30k/minute, or a number per second
    #[arg(long, value_name = "RATE", value_parser = number_text::rate)]
    rate: f64,
    /// The number of keys that are active at the same time: 50M, 200k
    #[arg(long, value_name = "N", value_parser = number_text::count)]
    keys: f64,
    /// Notations, or names of policies of --policies
    #[arg(required = true, value_name = "POLICY")]
    named: Vec<String>,
    #[command(flatten)]
    store: StoreOptions,
}

/// The load of one way of calling.
#[derive(Serialize)]
struct Load {
    /// Microseconds of a server's core for each check of all policies.
    micros_per_check: f64,
    /// Cores that are busy all the time.
    busy_cores: f64,
    /// Primaries. Each one runs its commands on one core.
    servers: u64,
}

impl Load {
    fn of(micros_per_check: f64, rate: f64) -> Self {
        let busy_cores = rate * micros_per_check / 1e6;
        Self { micros_per_check, busy_cores, servers: ((busy_cores / BUSY).ceil() as u64).max(1) }
    }
}

impl Size {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        let file = self.store.policies.read()?;
        let find = |name: &String| policy_argument::find(name, file.as_ref());
        let policies: Vec<Policy> = self.named.iter().map(find).collect::<Result<_, _>>()?;
        let store = self.store.chosen(file.as_ref());
        if store.file().is_some() {
            return Err(invalid(
                "file:// has no servers to size: its file has the bytes that max_bytes says. Name the servers with --store \
                 redis://…, or take the figures of this project with --store memory://",
            ));
        }
        let is_table = store.postgres().is_some();
        let costs = if store.is_memory() {
            Costs::shipped(&policies)
        } else if is_table {
            measured::costs_of_table(&store, &self.store, &policies, output)?
        } else {
            measured::costs(&store, &self.store, &policies, output)?
        };
        let (alone, folded) = (Load::of(costs.alone, self.rate), Load::of(costs.folded, self.rate));
        let (least, most) = costs.key_bytes;
        let memory = |key: f64| key * self.keys * MEMORY_MARGIN;
        if output.is_json() {
            output.json(&json!({
                "rate_per_second": self.rate,
                "keys": self.keys,
                "policies": policies.iter().map(Policy::name).collect::<Vec<_>>(),
                "costs": costs.source,
                "measured": costs.is_measured,
                "alone": alone,
                "folded": folded,
                "key_bytes": {"least": least, "most": most},
                "memory_bytes": {"least": memory(least), "most": memory(most)},
                "notes": costs.notes,
            }));
            return Ok(Outcome::Done);
        }
        let names: Vec<String> = policies.iter().map(|policy| paint(NAME, policy.name())).collect();
        output.line(format!(
            "{} checks per second, {} keys: {}",
            number(self.rate as u64),
            number(self.keys as u64),
            names.join(", ")
        ));
        output.line(paint(DIM, &format!("costs: {}", costs.source)));
        output.line("");
        let row = |title: &str, cells: [String; 2]| format!("  {title:<25} {:<17} {}", cells[0], cells[1]);
        output.line(paint(DIM, &row("", ["each check alone".to_owned(), "folded in batches".to_owned()])));
        let both = |show: fn(&Load) -> String| [show(&alone), show(&folded)];
        let title = if is_table { "time of a check" } else { "server CPU for a check" };
        output.line(row(title, both(|load| format!("{:.1} µs", load.micros_per_check))));
        if !is_table {
            output.line(row("cores that are busy", both(|load| format!("{:.1}", load.busy_cores))));
            let servers = both(|load| number(load.servers));
            output.line(paint(BOLD, &row("primaries, 60 % busy", servers)));
        }
        output.line("");
        let range = |least: f64, most: f64| {
            let (least, most) = (bytes(least), bytes(most));
            if least == most {
                return most;
            }
            let least = if most.ends_with(" bytes") { least.trim_end_matches(" bytes") } else { &least };
            format!("{least} to {most}")
        };
        let (one, all) = if is_table {
            ("disk of a key", "disk of the table")
        } else {
            ("memory of a key", "memory of all primaries")
        };
        output.line(format!("  {one:<26}{}", range(least, most)));
        output.line(paint(BOLD, &format!("  {all:<26}{}", range(memory(least), memory(most)))));
        output.line("");
        let advice = if is_table {
            "A server of PostgreSQL runs statements on all its cores, and each key is one row, which one process writes at a time. \
             Use Redis from a few thousand checks a second."
        } else {
            "A server runs its commands on one core, so more cores mean more servers: a cluster, or a list of stores. \
                      Async callers fold what waits at the same moment; blocking calls are alone. Each replica takes as much \
                      memory again."
        };
        for text in [advice].into_iter().chain(costs.notes.iter().map(String::as_str)) {
            wrapped(&escaped(text), width() - 3).iter().for_each(|line| output.line(format!("  {line}")));
        }
        Ok(Outcome::Done)
    }
}
