//! The transport under a simulated network: thousands of schedules a second, each repeatable from its seed.
//!
//! A schedule has a store with one server, a cluster, or sentinels. It has callers, and faults: connections that are
//! cut in the middle of a reply or that die silently, replies that trickle, servers that pause, vanish, load, restart
//! empty or forget the script, failovers, slots that move, a topology that is old, a host that does not read, a proxy
//! that corrupts replies, servers that lie in any field. The invariants are those of ADR 11. `ledger.rs` compares the
//! runs of servers with the answers to callers.
//!
//! `TIDEGATE_SCHEDULES` sets the number of schedules to run, `TIDEGATE_SCHEDULE` a single one. A seed that failed once
//! is kept in `seeds.txt` and always runs.

mod calls;
mod commands;
mod corruption;
mod faults;
mod host;
mod ledger;
mod lies;
mod network;
mod servers;
mod world;

use std::time::Instant;

use self::world::World;
use crate::schedules::{run_each, setting};

/// The number of schedules by default. As many run as there is time for.
const SCHEDULES: u64 = 100_000;

fn run(seed: u64) {
    let outcome = std::panic::catch_unwind(|| World::new(seed, Instant::now()).run());
    if let Err(panic) = outcome {
        eprintln!(
            "the schedule of seed {seed} failed; run it alone with TIDEGATE_SCHEDULE={seed}, and keep it in seeds.txt"
        );
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_call_is_answered_once_in_time_and_by_its_own_reply() {
    if let Some(seed) = setting("TIDEGATE_SCHEDULE") {
        return run(seed);
    }
    let kept = include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    kept.for_each(|seed| run(seed.parse().expect("a seed in seeds.txt")));
    let schedules = setting("TIDEGATE_SCHEDULES").unwrap_or(SCHEDULES);
    run_each(schedules, 6, run);
}
