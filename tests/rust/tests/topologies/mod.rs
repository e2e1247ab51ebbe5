//! Sentinels and clusters: the servers are found and followed, and each call reaches the right one.

mod check_all;
mod clearing;
mod cluster;
mod followed;
mod moving_slots;
mod over_slots;
mod sentinel;
mod stale_replicas;
mod wrong_kind;

use std::time::Duration;

use tidegate::{Builder, Decision, Limiter};
use tidegate_tests::any_limiter::AnyLimiter;
use tidegate_tests::wait::wait_until;
const POLICY: &str = "fixed-window 1000000/hour";

fn builder(url: &str) -> Builder {
    Limiter::builder().store(url).timeout(Duration::from_secs(3)).bare()
}

fn both(url: &str) -> [AnyLimiter; 2] {
    [false, true].map(|tasks| AnyLimiter::new(builder(url), tasks).expect("a limiter"))
}

fn used(decision: &Decision) -> u64 {
    decision.limit() - decision.remaining()
}

#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(20), what, holds);
}
