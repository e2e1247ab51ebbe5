//! Limits in the memory of this process, for which no feature of the crate is needed:
//! `cargo run --example memory --no-default-features`.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limiter, ManualClock};

fn main() -> Result<(), tidegate::Error> {
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
    let limiter = Limiter::builder().clock(Arc::clone(&clock)).policy("login", "20/minute; 5/3s")?.build()?;
    for number in 1..=6 {
        let decision = limiter.check("login", "alice")?;
        assert_eq!(decision.allowed(), number <= 5);
        println!("check {number}: {}", if decision.allowed() { "allowed" } else { "denied" });
    }
    let wait = limiter.peek("login", "alice", 1)?.retry_after().expect("units come back");
    clock.advance(wait);
    assert!(limiter.check("login", "alice")?.allowed());
    println!("allowed again after {wait:?}");
    Ok(())
}
