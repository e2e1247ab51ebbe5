//! Keyed checks of Tidegate and governor, in the memory of this process or in a file that processes share.

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate::Limiter;

use crate::Measured;
use crate::arguments::Arguments;

/// No benchmark uses it up.
const BURST: u64 = 100_000_000;
/// A key stays in use for so long after a check. A round of 5,000,000 keys is shorter.
const PERIOD: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);
/// The checks between two looks at the clock.
const CHECKS: usize = 256;

type Check = Box<dyn Fn(&String) -> bool + Send + Sync>;

/// The same bucket for both: one unit a period, and a burst that nothing uses up, so that every key stays in use.
fn candidate(arguments: &Arguments) -> Check {
    let keys: usize = arguments.number("keys");
    if arguments.text("contender") == "governor" {
        let is_denied = arguments.text_or("ask", "check") == "denial";
        let (period, burst) = if is_denied { (DAY, 1) } else { (PERIOD, BURST as u32) };
        let burst = NonZeroU32::new(burst).expect("more than none");
        let quota = Quota::with_period(period).expect("a period").allow_burst(burst);
        let governor: DefaultKeyedRateLimiter<String> = RateLimiter::dashmap(quota);
        return Box::new(move |key| governor.check_key(key).is_ok() | is_denied);
    }
    // The default bounds, unless some of the shards would be full.
    let memory = if keys > 500_000 { format!("memory://?max_keys={}", 2 * keys) } else { "memory://".to_owned() };
    let named = Limiter::builder()
        .store(arguments.text_or("url", &memory))
        .policy("p", format!("gcra 1/{}s burst {BURST}", PERIOD.as_secs()).as_str())
        .and_then(|named| named.policy("once", "gcra 1/day"))
        .and_then(|named| named.policy("window", format!("{BURST}/day").as_str()));
    let limiter = named.and_then(|named| named.build());
    let limiter = limiter.expect("a limiter");
    match arguments.text_or("ask", "check") {
        "check" => Box::new(move |key| limiter.check("p", key).expect("an answer").allowed()),
        "allows" => Box::new(move |key| limiter.allows("p", key).expect("an answer").allowed),
        "window" => Box::new(move |key| limiter.check("window", key).expect("an answer").allowed()),
        "peek" => Box::new(move |key| limiter.peek("p", key, 1).expect("an answer").allowed()),
        // The first check of a key is admitted, all others are denied.
        "denial" => Box::new(move |key| {
            limiter.check("once", key).expect("an answer");
            true
        }),
        other => panic!("ask={other} is unknown"),
    }
}

/// Checks on several threads until the time has passed. Returns the number of checks and the time that they took.
fn checks(threads: usize, span: Duration, keys: &[String], check: &Check) -> (usize, Duration) {
    let gate = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (mut at, mut done) = (thread * keys.len() / threads, 0);
            gate.wait();
            let start = Instant::now();
            while start.elapsed() < span {
                for _ in 0..CHECKS {
                    std::hint::black_box(check(&keys[at]));
                    at = if at + 1 < keys.len() { at + 1 } else { 0 };
                }
                done += CHECKS;
            }
            done
        };
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        gate.wait();
        let start = Instant::now();
        let done = workers.into_iter().map(|worker| worker.join().expect("a worker ends")).sum();
        (done, start.elapsed())
    })
}

/// Nanoseconds of wall time per check of all threads together, or with `as=rate` checks per second.
pub(crate) fn speed(arguments: &Arguments) -> Measured {
    let (threads, count): (usize, usize) = (arguments.number("threads"), arguments.number("keys"));
    let keys: Vec<String> = (0..count).map(|number| format!("user:{:07}", number * 7_919 % count)).collect();
    let check = candidate(arguments);
    // Every key exists before the measurement.
    for key in &keys {
        assert!(check(key), "a check is denied");
    }
    let (warm, _) = checks(threads, arguments.seconds("warm"), &keys, &check);
    let (done, took) = checks(threads, arguments.seconds("seconds"), &keys, &check);
    let rate = done as f64 / took.as_secs_f64();
    let value = if arguments.text_or("as", "time") == "rate" { rate } else { 1e9 / rate };
    Measured { value, decisions: (count + warm + done) as u64, beside: Vec::new() }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}

/// The growth of this process for each key, in bytes.
pub(crate) fn bytes(arguments: &Arguments) -> Measured {
    let count: u64 = arguments.number("keys");
    let check = candidate(arguments);
    let first = 100;
    (0..first).for_each(|number| assert!(check(&format!("user:{number:011}")), "a check is denied"));
    let before = resident_bytes();
    (first..count).for_each(|number| assert!(check(&format!("user:{number:011}")), "a check is denied"));
    let value = (resident_bytes() - before) as f64 / (count - first) as f64;
    Measured { value, decisions: count, beside: Vec::new() }
}
