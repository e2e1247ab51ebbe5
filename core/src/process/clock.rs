//! The clocks: one that tests move by hand, and the steady one of a process. And the signal that ends a wait.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::algorithm::MAX_SAFE_INTEGER;
use crate::process::alarm::Alarm;

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
    micros: Mutex<u64>,
    /// Notified by every change of the time, after the listeners.
    signals: Mutex<Vec<Weak<Signal>>>,
    listeners: Mutex<Vec<Weak<dyn ClockListener>>>,
}

/// Does what is due, on the thread that moved the clock.
pub(crate) trait ClockListener: Send + Sync {
    fn time_changed(&self);
}

impl ManualClock {
    /// A clock that shows that time since 1970.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { micros: Mutex::new(bounded(now)), signals: Mutex::default(), listeners: Mutex::default() }
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

    /// Sets it, also back.
    pub fn set(&self, now: Duration) {
        *self.micros.lock() = bounded(now);
        self.listeners.lock().retain(|listener| listener.strong_count() > 0);
        let listeners = self.listeners.lock().clone();
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.time_changed());
        self.signals.lock().retain(|signal| {
            signal.upgrade().is_some_and(|signal| {
                signal.notify();
                true
            })
        });
    }

    pub(crate) fn micros(&self) -> u64 {
        *self.micros.lock()
    }

    pub(crate) fn listen(&self, listener: Weak<dyn ClockListener>) {
        self.listeners.lock().push(listener);
    }

    /// Notifies the signal of every change, as long as it exists.
    pub(crate) fn notify_on_change(&self, signal: &Arc<Signal>) {
        self.signals.lock().push(Arc::downgrade(signal));
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish()
    }
}

/// The clock of a process: wall time when it was made, monotonic from there on.
pub(crate) struct SteadyClock {
    clock: quanta::Clock,
    /// The count of `clock` when this was made …
    started: u64,
    /// … and the wall time then, in microseconds.
    started_at: u64,
    /// The microseconds of one count, in parts of 2^64: one multiplication tells the time.
    micros_of_count: u64,
}

/// The counts over which their length is measured: some minutes, so that it is exact to a part of 10^12.
const MEASURED_COUNTS: u64 = 1 << 40;

impl Default for SteadyClock {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        let started = clock.raw();
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let nanos = clock.delta_as_nanos(0, MEASURED_COUNTS);
        let micros_of_count = (u128::from(nanos) << 64) / u128::from(MEASURED_COUNTS) / 1_000;
        Self { clock, started, started_at, micros_of_count: u64::try_from(micros_of_count).unwrap_or(u64::MAX) }
    }
}

impl SteadyClock {
    /// Microseconds since 1970.
    #[inline]
    pub(crate) fn micros(&self) -> u64 {
        let counts = self.clock.raw().saturating_sub(self.started);
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
    /// How many notifications there were. Read it before looking at what may change, so that no change is missed.
    pub(crate) fn count(&self) -> u64 {
        *self.notified.lock()
    }

    pub(crate) fn notify(&self) {
        *self.notified.lock() += 1;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Waits for a notification after `count`, at most that long.
    pub(crate) fn wait(&self, count: u64, at_most: Option<Duration>) {
        let mut notified = self.notified.lock();
        if *notified != count {
            return;
        }
        match at_most {
            Some(time) => {
                self.threads.wait_for(&mut notified, time);
            }
            None => self.threads.wait(&mut notified),
        }
    }

    /// Waits as a task of whatever executor: timers of tokio exist only where its runtime was built with them.
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
