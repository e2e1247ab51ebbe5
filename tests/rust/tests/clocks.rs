//! Clocks that jump. A server with such a clock admits no more than the limit, because the time of a key does not run
//! backwards. A caller waits as long as it may, even if its clock is moved.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate::{Limiter, ManualClock};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;
use tidegate_tests::wall_clock::wait_out_the_end_of_an_hour;

const ALGORITHMS: [&str; 8] = [
    "fixed-window",
    "calendar-window",
    "sliding-window",
    "sliding-log",
    "sliding-counter",
    "token-bucket",
    "gcra",
    "leaky-bucket",
];

fn admitted(limiter: &Limiter, notation: &str, key: &str) -> usize {
    let allowed = |_: &usize| limiter.check(notation, key).expect("a decision").allowed();
    (0..12).take_while(allowed).count()
}

fn limiter(servers: &Servers) -> Limiter {
    Limiter::builder()
        .store(servers.url())
        .timeout(Duration::from_secs(10))
        .deny_cache(Duration::ZERO)
        .build()
        .expect("a limiter")
}

#[test]
fn a_jump_back_by_a_day_admits_nothing_and_denies_no_new_key() {
    let servers = Servers::start_with(Kind::Single, json!({"clock": true}));
    wait_out_the_end_of_an_hour();
    let limiter = limiter(&servers);
    for algorithm in ALGORITHMS {
        assert_eq!(admitted(&limiter, &format!("{algorithm} 10/day"), "a"), 10, "{algorithm}");
    }
    for jump in [-60.0, -86_400.0, -86_400.0, 30.0] {
        servers.clock(0, jump);
        for algorithm in ALGORITHMS {
            assert_eq!(admitted(&limiter, &format!("{algorithm} 10/day"), "a"), 0, "{algorithm} after {jump} s");
        }
    }
    // A new key has no time yet.
    for algorithm in ALGORITHMS {
        assert_eq!(admitted(&limiter, &format!("{algorithm} 10/day"), "b"), 10, "{algorithm}");
    }
}

#[test]
fn jumps_back_and_forth_admit_nothing_twice() {
    let servers = Servers::start_with(Kind::Single, json!({"clock": true}));
    wait_out_the_end_of_an_hour();
    let limiter = limiter(&servers);
    for algorithm in ALGORITHMS {
        let notation = format!("{algorithm} 10/day");
        assert_eq!(admitted(&limiter, &notation, "a"), 10, "{algorithm}");
    }
    for _ in 0..3 {
        servers.clock(0, -86_400.0);
        for algorithm in ALGORITHMS {
            assert_eq!(admitted(&limiter, &format!("{algorithm} 10/day"), "a"), 0, "{algorithm}");
        }
        servers.clock(0, 86_400.0);
        for algorithm in ALGORITHMS {
            // Seconds pass between the jumps, not a day, so nothing comes back.
            assert_eq!(admitted(&limiter, &format!("{algorithm} 10/day"), "a"), 0, "{algorithm}");
        }
    }
}

/// The wait in an answer counts from the moment when the limiter asked the store.
#[test]
fn a_clock_that_moves_while_an_answer_comes_ends_no_wait() {
    let redis = Servers::start(Kind::Single);
    let proxy = Proxy::to(redis.port(0));
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let builder = Limiter::builder().store(format!("redis://127.0.0.1:{}/0", proxy.port())).clock(Arc::clone(&clock));
    let limiter = builder.timeout(Duration::from_secs(10)).build().expect("a limiter");
    assert!(limiter.check("fixed-window 1/10s", "k").expect("a decision").allowed());
    proxy.set(Condition::Silent);
    let waiter = limiter.clone();
    let waits = std::thread::spawn(move || waiter.acquire("fixed-window 1/10s", "k", 1, Some(Duration::from_secs(10))));
    wait_until(Duration::from_secs(20), "it waits", || limiter.waiting("fixed-window 1/10s", "k") == 1);
    // Its question needs a moment to leave.
    std::thread::sleep(Duration::from_millis(50));
    clock.advance(Duration::from_micros(9_999_999));
    proxy.set(Condition::Healthy);
    limiter.ping().expect("an answer");
    clock.advance(Duration::from_micros(1));
    assert!(waits.join().expect("no panic").expect("a decision").allowed(), "its turn was in time");
}
