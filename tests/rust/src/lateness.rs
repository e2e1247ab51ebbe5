//! What the machine adds by itself: it says nothing about the code, and a busy one adds a tenth of a second at times.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that see how late this machine wakes who waits, and for how long they wait.
const THREADS: usize = 4;
const SLEEP: Duration = Duration::from_millis(2);
/// From here on a machine stood still.
const STALLED: Duration = Duration::from_millis(10);
/// So many trials are made on a machine that stands still.
const TRIALS: u32 = 5;

/// Watches the machine while it lives.
pub struct LatenessProbe {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

impl LatenessProbe {
    /// From now on.
    #[must_use]
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..THREADS).map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut late = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    std::thread::sleep(SLEEP);
                    late.push(began.elapsed().saturating_sub(SLEEP));
                }
                late
            })
        });
        Self { threads: threads.collect(), over }
    }

    /// How late it was, each time.
    #[must_use]
    pub fn lateness(mut self) -> Vec<Duration> {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).flat_map(|thread| thread.join().expect("no panic")).collect()
    }

    /// How late it was at worst.
    #[must_use]
    pub fn late(self) -> Duration {
        self.lateness().into_iter().max().unwrap_or_default()
    }
}

impl Drop for LatenessProbe {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

static STRETCH: AtomicU32 = AtomicU32::new(1);

/// A timeout of a trial: longer when the machine stood still in the one before.
#[must_use]
pub fn stretched(timeout: Duration) -> Duration {
    timeout * STRETCH.load(Ordering::Relaxed)
}

/// Makes a trial. One that fails while the machine stands still has shown nothing and is made again, a few times, with
/// longer timeouts; where the machine is in time a failure is a failure.
pub fn retry_if_stalled(trial: impl Fn()) {
    for number in 1.. {
        let machine = LatenessProbe::start();
        let done = catch_unwind(AssertUnwindSafe(&trial));
        let late = machine.late();
        match done {
            Ok(()) => return,
            Err(panic) if late < STALLED || number == TRIALS => resume_unwind(panic),
            Err(_) => println!("the machine stood still for {late:?}: trial {number} has shown nothing"),
        }
        STRETCH.fetch_max(number + 1, Ordering::Relaxed);
    }
}
