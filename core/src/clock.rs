//! Time for tests: a clock that moves when it is told to.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::algorithm::MAX_SAFE_INTEGER;

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
    /// Who waits for time to pass …
    signals: Mutex<Vec<Weak<Signal>>>,
    /// … and who has something to do when it has.
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

/// Does what is due, on the thread that moved the clock.
pub(crate) trait Watcher: Send + Sync {
    fn time_passed(&self);
}

impl ManualClock {
    /// A clock that stands at that time since 1970.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { micros: Mutex::new(bounded(now)), signals: Mutex::default(), watchers: Mutex::default() }
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
        self.watchers.lock().retain(|watcher| watcher.strong_count() > 0);
        let watchers = self.watchers.lock().clone();
        watchers.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.time_passed());
        self.signals.lock().retain(|signal| {
            signal.upgrade().is_some_and(|signal| {
                signal.give();
                true
            })
        });
    }

    pub(crate) fn micros(&self) -> u64 {
        *self.micros.lock()
    }

    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.watchers.lock().push(watcher);
    }

    pub(crate) fn tell(&self, signal: &Arc<Signal>) {
        self.signals.lock().push(Arc::downgrade(signal));
    }
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish()
    }
}

/// This process's own time: wall time when it was made, and from there on never backwards.
pub(crate) struct Steady {
    clock: quanta::Clock,
    /// The clock's own count when it was made …
    started: u64,
    /// … and the wall time then, in nanoseconds.
    started_at: u64,
}

impl Default for Steady {
    fn default() -> Self {
        let clock = quanta::Clock::new();
        let started = clock.raw();
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self { clock, started, started_at }
    }
}

impl Steady {
    /// Microseconds since 1970.
    #[inline]
    pub(crate) fn micros(&self) -> u64 {
        (self.started_at + self.clock.delta_as_nanos(self.started, self.clock.raw())) / 1_000
    }
}

fn bounded(now: Duration) -> u64 {
    // Half of the largest number, so that every moment a rule computes stays below it.
    u64::try_from(now.as_micros()).unwrap_or(MAX_SAFE_INTEGER).min(MAX_SAFE_INTEGER / 2)
}

/// Wakes whoever waits for a change, a thread or a task.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    given: Mutex<u64>,
    threads: Condvar,
    tasks: Notify,
}

impl Signal {
    /// How often it was given; taken before looking at what may change, so that no change is missed.
    pub(crate) fn count(&self) -> u64 {
        *self.given.lock()
    }

    pub(crate) fn give(&self) {
        *self.given.lock() += 1;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Waits for the next one after `count`, or that long.
    pub(crate) fn wait(&self, count: u64, at_most: Option<Duration>) {
        let mut given = self.given.lock();
        if *given != count {
            return;
        }
        match at_most {
            Some(time) => {
                self.threads.wait_for(&mut given, time);
            }
            None => self.threads.wait(&mut given),
        }
    }

    /// The same for a task.
    pub(crate) async fn wait_async(&self, count: u64, at_most: Option<Duration>) {
        let notified = self.tasks.notified();
        if self.count() != count {
            return;
        }
        match at_most {
            // Whether it was given or time ran out is for the caller to find out.
            Some(time) => drop(tokio::time::timeout(time, notified).await),
            None => notified.await,
        }
    }
}
