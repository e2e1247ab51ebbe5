//! The verbs that ask a store.

use clap::Subcommand;

use crate::verbs::bench::Bench;
use crate::verbs::doctor::Doctor;
use crate::verbs::inspect::Inspect;
use crate::verbs::journal::Journal;
use crate::verbs::key::{Block, Check, Key, KeyAndUnits, Peek};
use crate::verbs::overrides::{Override, Overrides};
use crate::verbs::setup::Setup;
use crate::verbs::size::Size;
use crate::verbs::top::Top;
use crate::{Outcome, Output, Result};

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Check a key once, and consume its units
    Check(Check),
    /// Show the answer to a check without consuming
    Peek(Peek),
    /// Consume units, even past the limit
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
    /// Show everything that the store knows about a key
    Inspect(Inspect),
    /// Examine a store, and give advice: version, topology, permissions, eviction, clock, replication, latency
    Doctor(Doctor),
    /// Make the table that the store needs in PostgreSQL
    Setup(Setup),
    /// Estimate the servers, cores and memory for your traffic
    Size(Size),
    /// Show live which policies and keys are limited
    Top(Top),
    /// Measure the checks per second and the latency of this machine and this store
    Bench(Bench),
}

impl StoreVerb {
    pub(crate) fn run(&self, output: &mut Output) -> Result<Outcome> {
        match self {
            Self::Check(verb) => verb.run(output),
            Self::Peek(verb) => verb.run(output),
            Self::Charge(key) => key.charge(output),
            Self::Refund(key) => key.refund(output),
            Self::Clear(key) => key.clear(output),
            Self::Block(verb) => verb.run(output),
            Self::Unblock(key) => key.unblock(output),
            Self::Override(verb) => verb.run(output),
            Self::Overrides(verb) => verb.run(output),
            Self::Journal(verb) => verb.run(output),
            Self::Inspect(verb) => verb.run(output),
            Self::Doctor(verb) => verb.run(output),
            Self::Setup(verb) => verb.run(output),
            Self::Size(verb) => verb.run(output),
            Self::Top(verb) => verb.run(output),
            Self::Bench(verb) => verb.run(output),
        }
    }
}
