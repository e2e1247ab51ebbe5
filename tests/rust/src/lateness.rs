//! How late this machine wakes a sleeping thread. A busy machine adds a tenth of a second at times, which is no property of
//! the code under test.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that measure: each sleeps for a short time, again and again, and notes how much longer it slept.
const THREADS: usize = 4;
const SLEEP: Duration = Duration::from_millis(2);
/// A machine that wakes threads later than this has stalled.
const STALLED: Duration = Duration::from_millis(10);
/// A machine where some task waited for a processor for this share of a trial was busy. A server that has just used its
/// share of a busy processor waits for up to a fifth of a second, while threads that only sleep are woken in time.
const BUSY: f64 = 0.25;
/// A machine whose host took processors away for longer than this in a trial has stalled too.
const STOLEN: Duration = Duration::from_millis(10);
/// How often a trial is made on a machine that stalls.
const TRIALS: u32 = 5;

/// Measures from its start on.
pub struct LatenessProbe {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

impl LatenessProbe {
    /// Starts to measure.
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

    /// Every lateness that was measured.
    #[must_use]
    pub fn all(mut self) -> Vec<Duration> {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).flat_map(|thread| thread.join().expect("no panic")).collect()
    }

    /// The largest lateness that was measured.
    #[must_use]
    pub fn worst(self) -> Duration {
        self.all().into_iter().max().unwrap_or_default()
    }
}

impl Drop for LatenessProbe {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

static STRETCH: AtomicU32 = AtomicU32::new(1);

/// A timeout for a trial: longer when the machine stalled in the trial before.
#[must_use]
pub fn stretched(timeout: Duration) -> Duration {
    timeout * STRETCH.load(Ordering::Relaxed)
}

/// For how long tasks of this machine have waited for a processor, since the machine started. Nothing where the kernel does
/// not count it.
fn waited_for_processor() -> Option<Duration> {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = pressure.lines().find(|line| line.starts_with("some "))?.rsplit_once("total=")?.1;
    total.trim().parse().ok().map(Duration::from_micros)
}

/// For how long the host of a virtual machine has given its processors to others, in the hundredths of a second in which Linux
/// counts it.
fn stolen() -> Option<Duration> {
    let counts = std::fs::read_to_string("/proc/stat").ok()?;
    let hundredths: u64 = counts.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(Duration::from_millis(10 * hundredths))
}

/// By how much a count has grown; nothing when it is not to be had.
fn grown(now: Option<Duration>, before: Option<Duration>) -> Duration {
    now.zip(before).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before))
}

/// Makes a trial. A failure on a machine that stalls, or is busy, proves nothing: the trial is made again, a few times,
/// with longer timeouts. On a machine that keeps time a failure is a failure when the second trial fails too: a virtual machine
/// does not see every stall of its host.
pub fn retry_if_stalled(trial: impl Fn()) {
    for number in 1.. {
        let (probe, began) = (LatenessProbe::start(), Instant::now());
        let (waited, taken) = (waited_for_processor(), stolen());
        let done = catch_unwind(AssertUnwindSafe(&trial));
        let busy = grown(waited_for_processor(), waited).div_duration_f64(began.elapsed());
        let (late, taken) = (probe.worst(), grown(stolen(), taken));
        let kept_time = late < STALLED && busy < BUSY && taken < STOLEN;
        match done {
            Ok(()) => return,
            Err(panic) if (kept_time && number > 1) || number == TRIALS => resume_unwind(panic),
            Err(_) => println!(
                "trial {number} failed and is made again: the machine stalled for {late:?}, was busy {:.0} % of the time, \
                 and its host took {taken:?}",
                100.0 * busy,
            ),
        }
        STRETCH.fetch_max(number + 1, Ordering::Relaxed);
    }
}
