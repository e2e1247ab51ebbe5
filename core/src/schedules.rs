//! The settings of the simulations, and the threads that run their schedules.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number in an environment variable.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Calls `run` with each number below `count`, on the two cores that the simulations reserve, for up to `seconds`. With
/// `TIDEGATE_FULL=1` all of them run, otherwise at least a hundredth. A panic is passed on to the caller.
pub(crate) fn run_each(count: u64, seconds: u64, run: impl Fn(u64) + Sync) {
    let is_full = std::env::var_os("TIDEGATE_FULL").is_some_and(|value| !value.is_empty());
    let least = if is_full { count } else { count.div_ceil(100) };
    let (next, start, time) = (AtomicU64::new(0), Instant::now(), Duration::from_secs(seconds));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || number >= least && start.elapsed() >= time {
                return;
            }
            run(number);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    // Each of the two threads has taken a number that it did not run.
    let ran = next.into_inner() - 2;
    println!("{ran} of {count} ran in {:.1} s, from 0 on; TIDEGATE_FULL=1 runs all", start.elapsed().as_secs_f64());
}
