//! What the simulations share: their settings, and the threads that run their schedules.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number in a variable of the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Calls `run` with each number below `count`, on the two cores that the simulations reserve. A panic goes on in the caller.
pub(crate) fn run_each(count: u64, run: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
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
}
