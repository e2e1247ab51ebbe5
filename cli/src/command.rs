//! The verbs and their arguments.

use clap::{CommandFactory, Parser, Subcommand};

use crate::verbs::bench::Bench;
use crate::verbs::completions::Completions;
use crate::verbs::demo::Demo;
use crate::verbs::doctor::Doctor;
use crate::verbs::explain::Explain;
use crate::verbs::inspect::Inspect;
use crate::verbs::journal::Journal;
use crate::verbs::key::{Block, Check, Key, KeyAndUnits, Peek};
use crate::verbs::lint::Lint;
use crate::verbs::overrides::{Override, Overrides};
use crate::verbs::size::Size;
use crate::verbs::top::Top;
use crate::{Failure, Outcome, Output, simulate};

/// Explains, checks and simulates rate limits, and looks into their store.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    arg_required_else_help = true,
    max_term_width = 110,
    after_help = "Exit codes: 0 done or allowed, 1 denied or found something, 2 error.

Examples:
  $ tidegate explain \"20/minute; 5/3s\"
  $ tidegate lint tidegate.yaml
  $ tidegate check login alice --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate doctor --store redis://localhost:6379"
)]
pub(crate) struct Command {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When to use colours; NO_COLOR is honoured
    // Read by `terminal::colours_of` before the arguments are parsed.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: clap::ColorChoice,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say in words what a policy admits: worst burst, steady use, which limit binds, what it costs
    Explain(Explain),
    /// Warn of what does not do what it seems to, in policy files
    Lint(Lint),
    /// Ask and consume: one check of a key
    Check(Check),
    /// Ask without consuming
    Peek(Peek),
    /// Consume even past the limit
    #[command(after_help = "Examples:
  $ tidegate charge login alice 5 --policies tidegate.yaml
  $ tidegate charge \"1000/hour\" job-17 --cost 250 --json")]
    Charge(KeyAndUnits),
    /// Give units back
    #[command(after_help = "Examples:
  $ tidegate refund login alice --policies tidegate.yaml --store redis://localhost:6379
  $ tidegate refund \"1000/hour\" job-17 250 --store redis://localhost:6379")]
    Refund(KeyAndUnits),
    /// Forget the usage of a key, and end its block
    #[command(after_help = "The journal of the key stays.

Examples:
  $ tidegate clear login alice --policies tidegate.yaml --store redis://localhost:6379")]
    Clear(Key),
    /// Deny a key for some time, whatever its usage
    Block(Block),
    /// End a block
    #[command(after_help = "Examples:
  $ tidegate unblock login mallory --policies tidegate.yaml --store redis://localhost:6379")]
    Unblock(Key),
    /// Give a key other limits than its policy
    Override(Override),
    /// List the keys of a policy that have other limits
    Overrides(Overrides),
    /// Show the newest attempts of a key
    Journal(Journal),
    /// Show everything that is known of a key
    Inspect(Inspect),
    /// Examine a store: reachable, version, topology, permissions, eviction, clock, replication, round trip
    Doctor(Doctor),
    /// Work out the servers, cores and memory that traffic takes
    Size(Size),
    /// Show which policies and keys are being limited, live
    Top(Top),
    /// Replay traffic through several policies side by side: a table and a plot
    Simulate(simulate::Arguments),
    /// Measure checks per second and latency: this machine, this store
    Bench(Bench),
    /// Show a policy of two limits admit, refuse, explain and admit again
    Demo(Demo),
    /// Print the completions of a shell
    Completions(Completions),
}

impl Command {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome, Failure> {
        match &self.verb {
            Verb::Explain(verb) => verb.run(output),
            Verb::Lint(verb) => verb.run(output),
            Verb::Check(verb) => verb.run(output),
            Verb::Peek(verb) => verb.run(output),
            Verb::Charge(key) => key.charge(output),
            Verb::Refund(key) => key.refund(output),
            Verb::Clear(key) => key.clear(output),
            Verb::Block(verb) => verb.run(output),
            Verb::Unblock(key) => key.unblock(output),
            Verb::Override(verb) => verb.run(output),
            Verb::Overrides(verb) => verb.run(output),
            Verb::Journal(verb) => verb.run(output),
            Verb::Inspect(verb) => verb.run(output),
            Verb::Doctor(verb) => verb.run(output),
            Verb::Size(verb) => verb.run(output),
            Verb::Top(verb) => verb.run(output),
            Verb::Simulate(arguments) => simulate::run(arguments, output),
            Verb::Bench(verb) => verb.run(output),
            Verb::Demo(verb) => verb.run(output),
            Verb::Completions(verb) => verb.run(&mut Self::command(), output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Command::command().debug_assert();
    }
}
