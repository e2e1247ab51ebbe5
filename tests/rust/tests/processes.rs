//! Threads and forks: nothing of a limiter outlives it, and a child does not wait for its parent's threads. A binary of
//! its own, since the threads of a process are everybody's.

use std::time::{Duration, Instant};

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::threads;

fn threads(name: &str) -> usize {
    threads::named(name).len()
}

fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what} in ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// One test: what is counted is the whole process's.
#[test]
#[cfg(target_os = "linux")]
fn threads_live_as_long_as_they_are_needed_and_a_child_asks_for_itself() {
    let server = Servers::start(Kind::Single);
    let make = || {
        let builder = Limiter::builder().store(server.url()).timeout(Duration::from_millis(150));
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
        soon("a probe", || threads("tidegate-probe") == 1);
        server.start_again(0);
        soon("the probe ends", || threads("tidegate-probe") == 0);
        limiter.check("5/hour", "k").expect("it is back");
    }
    server.kill(0);
    lose(&limiter);
    soon("a probe", || threads("tidegate-probe") == 1);
    limiter.close();
    soon("a closed limiter has no probe", || threads("tidegate-probe") == 0);
    // Dropped without a word.
    let limiter = make();
    lose(&limiter);
    soon("a probe", || threads("tidegate-probe") == 1);
    drop(limiter);
    soon("a dropped limiter has no probe", || threads("tidegate-probe") == 0);

    // What a child of a fork sees: a breaker that is open, and no thread that will ever close it.
    let limiter = make();
    lose(&limiter);
    let (asked, withheld) = (limiter.counters().asked, limiter.counters().withheld);
    assert!(withheld > 0);
    tidegate::after_fork_in_child();
    limiter.check("5/hour", "k").expect_err("it is still gone");
    assert_eq!(limiter.counters().asked, asked + 1, "it asked for itself");
    lose(&limiter);
    assert!(limiter.counters().withheld > withheld, "and found out for itself");
    server.start_again(0);
    soon("it is back", || limiter.check("5/hour", "k").is_ok());
    soon("no probe is left", || threads("tidegate-probe") == 0);
}
