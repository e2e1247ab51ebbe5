//! `check-cost CASE COUNT` makes COUNT checks in memory, and `benches/instructions.py` counts their instructions.

use std::hint::black_box;
use std::time::Instant;

use tidegate::{Limiter, Policy};

/// Large enough that no check of a run is near it.
const ALLOWED: &str = "gcra 1000000000/s";
/// Denies for as long as any run takes.
const DENIED: &str = "1/year";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let notation = if case.ends_with("denied") { DENIED } else { ALLOWED };
    let policy = Policy::parse(notation).and_then(|policy| policy.named("login")).expect("a policy");
    let limiter = Limiter::builder().named(policy.clone()).expect("one policy").build().expect("a limiter");
    let by_name = case.starts_with("name");
    let began = Instant::now();
    let allowed = measured_checks(&limiter, &policy, by_name, count);
    println!("{case}: {allowed} of {count} allowed, {:.1} ns each", began.elapsed().as_nanos() as f64 / count as f64);
}

/// The measured part: callgrind collects only while this function runs.
#[inline(never)]
fn measured_checks(limiter: &Limiter, policy: &Policy, by_name: bool, count: u64) -> u64 {
    let mut allowed = 0;
    for _ in 0..count {
        let decision = if by_name {
            limiter.check(black_box("login"), black_box("user:1234567"))
        } else {
            limiter.check(black_box(policy), black_box("user:1234567"))
        };
        allowed += u64::from(decision.expect("a decision").allowed());
    }
    allowed
}
