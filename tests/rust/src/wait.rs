//! Waiting for something that another thread or a server does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(5);
const SHORT_INTERVAL: Duration = Duration::from_micros(50);

/// Waits until a condition holds, and returns how long that took. `patience` is longer than it ever takes unless
/// something is broken.
///
/// # Panics
/// When the condition does not hold in time.
#[track_caller]
pub fn wait_until(patience: Duration, what: &str, holds: impl FnMut() -> bool) -> Duration {
    wait(POLL_INTERVAL, patience, what, holds)
}

/// The same for tests that wait often and briefly. For them the usual interval would be most of their time.
///
/// # Panics
/// When the condition does not hold in time.
#[track_caller]
pub fn wait_closely(patience: Duration, what: &str, holds: impl FnMut() -> bool) -> Duration {
    wait(SHORT_INTERVAL, patience, what, holds)
}

#[track_caller]
fn wait(interval: Duration, patience: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < patience, "waited {patience:?} in vain until {what}");
        std::thread::sleep(interval);
    }
    began.elapsed()
}

/// Sets a flag when it is dropped: threads that run until the flag is set also end when the test panics.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
