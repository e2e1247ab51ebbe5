//! Threads and forks: no thread of a limiter outlives it, and a child process does not wait for its parent's threads.
//! nextest runs this in a separate process, so that only threads of this test are counted.

use std::time::Duration;

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::threads;
use tidegate_tests::wait::wait_until;

fn threads(name: &str) -> usize {
    threads::named(name).len()
}

#[track_caller]
fn soon(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(10), what, holds);
}

/// One probe waits for an answer for a short time, and the other for as long as a call.
const PROBES: usize = 2;

// One test, because it counts the threads of the whole process.
#[test]
#[cfg(target_os = "linux")]
fn threads_live_as_long_as_they_are_needed_and_a_child_calls_the_store_itself() {
    let server = Servers::start(Kind::Single);
    let make = || {
        let builder = Limiter::builder().store(server.url()).timeout(Duration::from_secs(5));
        builder.on_store_error(OnStoreError::Raise).build().expect("a limiter")
    };
    let limiter = make();
    soon("the server answers", || limiter.ping().is_ok());
    assert_eq!(threads("tidegate-probe"), 0);
    let lose = |limiter: &Limiter| {
        for _ in 0..4 {
            limiter.check("5/hour", "k").expect_err("it is gone");
        }
    };
    for _ in 0..3 {
        server.kill(0);
        lose(&limiter);
        soon("a probe", || threads("tidegate-probe") == PROBES);
        server.start_again(0);
        soon("the probe ends", || threads("tidegate-probe") == 0);
        limiter.check("5/hour", "k").expect("it is back");
    }
    server.kill(0);
    lose(&limiter);
    soon("a probe", || threads("tidegate-probe") == PROBES);
    limiter.close();
    soon("a closed limiter has no probe", || threads("tidegate-probe") == 0);
    // Dropped without `close`.
    let limiter = make();
    lose(&limiter);
    soon("a probe", || threads("tidegate-probe") == PROBES);
    drop(limiter);
    soon("a dropped limiter has no probe", || threads("tidegate-probe") == 0);

    // A child process starts with an open breaker, and without the thread that would close it.
    let limiter = make();
    lose(&limiter);
    assert!(limiter.counters().withheld > 0);
    let in_memory = Limiter::builder().build().expect("a limiter");
    in_memory.check("5/hour", "k").expect("a decision");
    tidegate::after_fork_in_child();
    limiter.check("5/hour", "k").expect_err("it is still gone");
    assert_eq!(limiter.counters().asked, 1, "it called the store itself, and counts from zero");
    lose(&limiter);
    assert!(limiter.counters().withheld > 0, "and opened its own breaker");
    let allowed = || in_memory.stats().policies.values().map(|policy| policy.allowed).sum::<u64>();
    assert_eq!(allowed(), 0, "decisions are counted from zero too");
    in_memory.check("5/hour", "k").expect("a decision");
    assert_eq!(allowed(), 1);
    server.start_again(0);
    soon("it is back", || limiter.check("5/hour", "k").is_ok());
    soon("no probe is left", || threads("tidegate-probe") == 0);
}
