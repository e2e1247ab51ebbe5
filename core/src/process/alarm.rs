//! Timers for tasks of any executor. One thread serves them, while any task waits.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::process::lock::{Condvar, Mutex};

use crate::process::fork::PerProcess;

static CLOCK: PerProcess<AlarmClock> = PerProcess::new();

/// The moment of an alarm, and a number that distinguishes alarms of the same moment.
type Due = (Instant, u64);

#[derive(Default)]
struct AlarmClock {
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

#[derive(Default)]
struct Alarms {
    due: BTreeMap<Due, Waker>,
    last_number: u64,
    has_thread: bool,
}

/// Is ready from a moment on. Dropping it removes it from the clock.
pub(crate) struct Alarm {
    at: Instant,
    set: Option<Due>,
}

impl Alarm {
    pub(crate) fn after(time: Duration) -> Self {
        let now = Instant::now();
        // If the clock has no such moment, one that is later than any program runs.
        let at = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(1 << 31));
        Self { at, set: None }
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let due = CLOCK.with(AlarmClock::default, |clock| clock.set(self.at, self.set, cx.waker()));
        self.set = Some(due);
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let (Some(due), Some(clock)) = (self.set, CLOCK.get()) {
            let mut alarms = clock.alarms.lock();
            alarms.due.remove(&due);
            if alarms.due.is_empty() {
                clock.changed.notify_one();
            }
        }
    }
}

impl AlarmClock {
    fn set(&self, at: Instant, known: Option<Due>, waker: &Waker) -> Due {
        let mut alarms = self.alarms.lock();
        let due = known.unwrap_or_else(|| {
            alarms.last_number += 1;
            (at, alarms.last_number)
        });
        alarms.due.insert(due, waker.clone());
        if !alarms.has_thread {
            let run = || CLOCK.with(AlarmClock::default, Self::run);
            alarms.has_thread = std::thread::Builder::new().name("tidegate-alarm".to_owned()).spawn(run).is_ok();
        }
        if !alarms.has_thread {
            // Without a thread, the task looks at the clock again and again.
            waker.wake_by_ref();
        } else if alarms.due.first_key_value().is_some_and(|(first, _)| *first == due) {
            self.changed.notify_one();
        }
        due
    }

    /// Wakes tasks until nothing is due any more. This is the work of the thread.
    fn run(&self) {
        let mut alarms = self.alarms.lock();
        while let Some((at, _)) = alarms.due.first_key_value().map(|(due, _)| *due) {
            if at > Instant::now() {
                (alarms, _) = self.changed.wait_until(alarms, at);
                continue;
            }
            if let Some((_, waker)) = alarms.due.pop_first() {
                // Without the lock, because the task may set another alarm.
                drop(alarms);
                waker.wake();
                alarms = self.alarms.lock();
            }
        }
        alarms.has_thread = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_nearest_goes_off_and_one_that_is_dropped_does_not() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        let mut far = Alarm::after(Duration::MAX);
        let mut dropped = Alarm::after(Duration::from_millis(1));
        let mut near = Alarm::after(Duration::from_millis(20));
        assert!(far.poll(&cx).is_pending() && near.poll(&cx).is_pending());
        let _ = dropped.poll(&cx);
        drop(dropped);
        while near.poll(&cx).is_pending() {
            std::thread::yield_now();
        }
        assert!(far.poll(&cx).is_pending());
        assert!(Alarm::after(Duration::ZERO).poll(&cx).is_ready());
        assert!(woken.0.load(Ordering::SeqCst) <= 2);
    }
}
