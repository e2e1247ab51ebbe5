//! The verbs and their arguments.

#[cfg(feature = "stores")]
use clap::CommandFactory;
use clap::{Parser, Subcommand};

#[cfg(feature = "stores")]
use crate::store_verb::StoreVerb;
#[cfg(feature = "stores")]
use crate::verbs::completions::Completions;
#[cfg(feature = "demo")]
use crate::verbs::demo::Demo;
use crate::verbs::explain::Explain;
use crate::verbs::lint::Lint;
use crate::{Outcome, Output, Result, simulate};

/// Explains, checks and simulates rate limits, and looks into their store.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    arg_required_else_help = true,
    max_term_width = 110,
    after_help = "The exit code is 0 if all is well (done, allowed), 1 if a call is denied or something was found, and 2 \
        after an error.

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

    /// When to use colours. `auto` also obeys NO_COLOR
    // Read by `terminal::colours_of` before the arguments are parsed.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: clap::ColorChoice,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Explain a policy in words: its worst burst, its steady rate, the limit that binds, and its costs
    Explain(Explain),
    /// Check policy files, and warn about limits and options without the effect that they seem to have
    Lint(Lint),
    /// Replay traffic through several policies, and compare them in a table and a plot
    Simulate(simulate::Arguments),
    #[cfg(feature = "stores")]
    #[command(flatten)]
    Store(StoreVerb),
    /// Show a short demonstration: calls that are admitted, refused and admitted again
    #[cfg(feature = "demo")]
    Demo(Demo),
    /// Print the completion script for a shell
    #[cfg(feature = "stores")]
    Completions(Completions),
}

impl Command {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        match &self.verb {
            Verb::Explain(verb) => verb.run(output),
            Verb::Lint(verb) => verb.run(output),
            Verb::Simulate(arguments) => simulate::run(arguments, output),
            #[cfg(feature = "stores")]
            Verb::Store(verb) => verb.run(output),
            #[cfg(feature = "demo")]
            Verb::Demo(verb) => verb.run(output),
            #[cfg(feature = "stores")]
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
