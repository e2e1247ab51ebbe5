//! Several simulated processes lease from one store: messages are delayed and lost, processes pause, are killed and have clocks
//! that drift. A brute-force count over all admissions finds no window that is passed.
//!
//! `TIDEGATE_SCHEDULES` sets the number of histories to run, `TIDEGATE_SCHEDULE` selects one.

mod counting;
mod world;

use std::sync::Mutex;

use super::Leases;
use crate::plan::plan_cache::plan_of;
use crate::policy::{Lease, Options, Policy};
use crate::schedules::{run_each, setting};
use world::{Report, World};

/// Histories of each policy that run by default.
const HISTORIES: u64 = 400;

/// Histories that found a defect. They run always.
const FOUND: [u64; 1] = [
    // Units of a bucket that came back late moved its moment into the future, where its level was taken for that of now.
    2_122,
];

/// Windows, logs, counters and buckets, alone and together, with periods around the life of a lease.
const LIMITS: [&str; 14] = [
    "fixed-window 300/s",
    "fixed-window 2000/5s",
    "calendar-window 500/s",
    "calendar-window 900/3s",
    "sliding-window 400/s",
    "sliding-window 3000/10s",
    "sliding-log 200/s",
    "sliding-log 900/9s",
    "sliding-counter 300/s",
    "sliding-counter 2000/5s",
    "gcra 100/s burst 300",
    "gcra 7/300ms burst 150",
    "token-bucket 1000/s",
    "fixed-window 900/2s; gcra 300/s burst 600; sliding-window 2000/5s",
];

fn policy(limits: &str, share: &str) -> Policy {
    let limits = Policy::parse(limits).expect("a notation").limits().to_vec();
    let lease = Some(Lease::parse(share).expect("a lease"));
    Policy::new(limits, Options { lease, ..Options::default() }).and_then(|policy| policy.named("p")).expect("a policy")
}

fn run(limits: &str, seed: u64) -> Report {
    let policy = policy(limits, ["5%", "20%", "50%", "37"][seed as usize % 4]);
    let report = World::new(&plan_of(&policy), seed).run();
    if let Some(violation) = counting::violation(policy.limits(), &report.admissions, &report.windows) {
        panic!("{limits}, history {seed}: {violation}");
    }
    report
}

#[test]
fn no_window_is_passed() {
    let seeds: Vec<u64> = match setting("TIDEGATE_SCHEDULE") {
        Some(seed) => vec![seed],
        None => {
            let count = setting("TIDEGATE_SCHEDULES").map_or(HISTORIES, |all| all / LIMITS.len() as u64);
            FOUND.into_iter().chain(0..count).collect()
        }
    };
    let totals = LIMITS.map(|_| Mutex::new((0, Report::default())));
    // Each seed runs with all limits before the next one does.
    run_each((seeds.len() * LIMITS.len()) as u64, 3, |number| {
        let (seed, index) = (seeds[number as usize / LIMITS.len()], number as usize % LIMITS.len());
        let report = run(LIMITS[index], seed);
        let mut total = totals[index].lock().expect("no panic");
        total.0 += 1;
        total.1.add(report);
    });
    for (limits, total) in LIMITS.iter().zip(totals) {
        let (histories, total) = total.into_inner().expect("no panic");
        println!("{limits}: {histories} histories, {total}");
        if histories > 100 {
            assert!(total.leased * 20 > total.admitted, "{limits}: leases are tried: {total}");
            assert!(total.given_back > 0 && total.lost > 0 && total.killed > 0, "{limits}: faults are tried: {total}");
        }
    }
}
