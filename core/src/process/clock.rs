//! The clocks: one that tests move by hand, and the steady one of a process. Also the signal that ends a wait.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use once_cell::race::OnceBox;
use tokio::sync::Notify;

use crate::algorithm::MAX_SAFE_INTEGER;
use crate::process::alarm::Alarm;
use crate::process::fork::{self, PerProcess};
use crate::process::lock::{Condvar, Mutex};

/// A clock for tests: give it to a limiter, and its time decides instead of the store's.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tidegate::{Limiter, ManualClock};
///
/// let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
/// let limiter = Limiter::builder().clock(Arc::clone(&clock)).build()?;
/// assert!(limiter.check("1/minute", "alice")?.allowed());
/// assert!(!limiter.check("1/minute", "alice")?.allowed());
/// clock.advance(Duration::from_secs(63));
/// assert!(limiter.check("1/minute", "alice")?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
pub struct ManualClock {
    micros: AtomicU64,
    /// Every change of the time notifies them, after the listeners. Callers that wait exist in one process only.
    signals: PerProcess<Mutex<Vec<Weak<Signal>>>>,
    /// Without a lock, because a child has the listeners of its parent.
    listeners: ArcSwap<Vec<Weak<dyn ClockListener>>>,
}

/// Reacts to a change of the time, on the thread that moved the clock.
pub(crate) trait ClockListener: Send + Sync {
    fn time_changed(&self);
}

impl ManualClock {
    /// A clock that shows that time since 1970.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { micros: AtomicU64::new(bounded(now)), signals: PerProcess::new(), listeners: ArcSwap::default() }
    }

    /// The time since 1970.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.micros())
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let now = self.now().saturating_add(by);
        self.set(now);
    }

    /// Sets it, forward or back.
    pub fn set(&self, now: Duration) {
        self.micros.store(bounded(now), Ordering::SeqCst);
        let listeners = self.listeners.load_full();
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.time_changed());
        let Some(signals) = self.signals.get() else { return };
        signals.lock().retain(|signal| {
            signal.upgrade().is_some_and(|signal| {
                signal.notify();
                true
            })
        });
    }

    pub(crate) fn micros(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }

    pub(crate) fn listen(&self, listener: Weak<dyn ClockListener>) {
        self.listeners.rcu(|known| {
            let alive = known.iter().filter(|known| known.strong_count() > 0).cloned();
            alive.chain([Weak::clone(&listener)]).collect::<Vec<_>>()
        });
    }

    /// Notifies the signal of every change, as long as it exists.
    pub(crate) fn notify_on_change(&self, signal: &Arc<Signal>) {
        self.signals.with(Mutex::default, |signals| signals.lock().push(Arc::downgrade(signal)));
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish()
    }
}

/// The clock of a process. It starts with the wall time and is monotonic from there on.
pub(crate) struct SteadyClock {
    /// If it is missing, the time since `began` is counted in nanoseconds.
    clock: Option<quanta::Clock>,
    began: Instant,
    /// The count of `clock` when this was made …
    started: u64,
    /// … and the wall time then, in microseconds.
    started_at: u64,
    /// The microseconds of one count, in parts of 2^64, so that one multiplication gives the time.
    micros_of_count: u64,
}

/// The length of a count is measured over this many counts, some minutes, so that it is exact to a part in 10^12.
const MEASURED_COUNTS: u64 = 1 << 40;

/// The counter of the CPU. It is measured once, behind a lock. `None` in a child that was forked while its parent measured.
fn measured_clock() -> Option<quanta::Clock> {
    static MEASURED: OnceBox<quanta::Clock> = OnceBox::new();
    /// The number of the process that began to measure it, from 1 on.
    static MEASURED_BY: AtomicU64 = AtomicU64::new(0);
    let here = fork::generation() + 1;
    let is_mine = || match MEASURED_BY.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(by) => by == here,
    };
    let known = MEASURED.get().or_else(|| is_mine().then(|| MEASURED.get_or_init(|| Box::new(quanta::Clock::new()))));
    known.cloned()
}

impl Default for SteadyClock {
    fn default() -> Self {
        let (clock, began) = (measured_clock(), Instant::now());
        let started = clock.as_ref().map_or(0, quanta::Clock::raw);
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let nanos = clock.as_ref().map_or(MEASURED_COUNTS, |clock| clock.delta_as_nanos(0, MEASURED_COUNTS));
        let micros_of_count = (u128::from(nanos) << 64) / u128::from(MEASURED_COUNTS) / 1_000;
        Self { clock, began, started, started_at, micros_of_count: u64::try_from(micros_of_count).unwrap_or(u64::MAX) }
    }
}

impl SteadyClock {
    /// Microseconds since 1970.
    #[inline]
    pub(crate) fn micros(&self) -> u64 {
        let counts = match &self.clock {
            Some(clock) => clock.raw().saturating_sub(self.started),
            None => self.began.elapsed().as_nanos() as u64,
        };
        self.started_at + ((u128::from(counts) * u128::from(self.micros_of_count)) >> 64) as u64
    }
}

fn bounded(now: Duration) -> u64 {
    // Half of the largest number, so that every moment a rule computes stays below it.
    u64::try_from(now.as_micros()).unwrap_or(MAX_SAFE_INTEGER).min(MAX_SAFE_INTEGER / 2)
}

/// Wakes threads and tasks that wait for a change.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    notified: Mutex<u64>,
    threads: Condvar,
    tasks: Notify,
}

impl Signal {
    /// The number of notifications. Read it before you look at the value that may change, so that you miss no change.
    pub(crate) fn count(&self) -> u64 {
        *self.notified.lock()
    }

    pub(crate) fn notify(&self) {
        *self.notified.lock() += 1;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Waits for a notification after `count`, for at most `at_most`.
    pub(crate) fn wait(&self, count: u64, at_most: Option<Duration>) {
        let notified = self.notified.lock();
        if *notified != count {
            return;
        }
        // A moment that the clock cannot show ends no wait.
        match at_most.and_then(|time| Instant::now().checked_add(time)) {
            Some(end) => drop(self.threads.wait_until(notified, end)),
            None => drop(self.threads.wait(notified)),
        }
    }

    /// Waits as a task of any executor. Timers of tokio exist only if its runtime was built with them.
    pub(crate) async fn wait_async(&self, count: u64, at_most: Option<Duration>) {
        let mut notified = pin!(self.tasks.notified());
        if self.count() != count {
            return;
        }
        let mut alarm = at_most.map(Alarm::after);
        // The caller finds out whether it was notified or the time is over.
        poll_fn(|cx| match alarm.as_mut().map(|alarm| alarm.poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(()),
            _ => notified.as_mut().poll(cx),
        })
        .await;
    }
}
