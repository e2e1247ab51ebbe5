//! The locks of a process, and the locks that a forked child inherits. docs/adr/0047 lists them.
//!
//! After a fork, only the thread that called it remains. A lock that another thread held at that moment stays locked in
//! the child for ever, and the value behind it may be half changed. So a child never waits for such a lock. It always
//! makes the value of a [`PerProcess`] anew, and the lock of an [`InheritedMutex`] if it was held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, PoisonError, TryLockError};
#[cfg(feature = "redis")]
use std::time::Duration;
use std::time::Instant;

use once_cell::race::OnceBox;

use super::fork::{self, PerProcess};

/// A thread that waits for a lock with a deadline looks this often if it is free.
#[cfg(feature = "redis")]
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// The lock of a value that no child uses. `parking_lot` has a table of all locks of a process, which a child would
/// inherit. The standard library has no such table.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Gives access to the value of a lock.
pub(crate) type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock. If another thread panicked while it held the lock, the value is used all the same.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        note_locked();
        guard
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        note_locked();
        Some(guard)
    }

    /// Waits for the lock until `end`, by looking again and again. For a value that is rarely locked, and then for long.
    #[cfg(feature = "redis")]
    pub(crate) fn try_lock_until(&self, end: Instant) -> Option<MutexGuard<'_, T>> {
        loop {
            let guard = self.try_lock();
            if guard.is_some() || Instant::now() >= end {
                return guard;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// The value, to which nothing else has access.
    #[cfg(feature = "tower")]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes threads that wait for a change of the value of a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change until that moment. Returns true if the moment has come.
    pub(crate) fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, end: Instant) -> (MutexGuard<'a, T>, bool) {
        let left = end.saturating_duration_since(Instant::now());
        let (guard, waited) = self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
        (guard, waited.timed_out())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock, and the process that uses it. Before a child uses it, the child takes it over or replaces it.
#[derive(Debug)]
struct Inherited<L> {
    /// The process that uses the lock.
    process: AtomicU64,
    lock: L,
    /// Replaces a lock that a thread of a parent holds for ever.
    heir: OnceBox<Self>,
}

/// One thread of a child at a time takes locks over, so that it does not take another thread of the child for one of the parent.
static TAKING_OVER: PerProcess<Mutex<()>> = PerProcess::new();

impl<L> Inherited<L> {
    /// A lock of process 0. A later process that makes one takes it over at the first use.
    const fn new(lock: L) -> Self {
        Self { process: AtomicU64::new(0), lock, heir: OnceBox::new() }
    }

    /// The lock that this process uses. `anew` returns a replacement if the lock is held.
    #[inline(always)]
    fn of_this_process(&self, anew: impl FnOnce(&L) -> Option<L>) -> &L {
        if self.process.load(Ordering::Relaxed) == fork::generation() { &self.lock } else { self.taken_over(anew) }
    }

    #[cold]
    fn taken_over(&self, anew: impl FnOnce(&L) -> Option<L>) -> &L {
        let here = fork::generation();
        if self.last().process.load(Ordering::Acquire) == here {
            return &self.last().lock;
        }
        TAKING_OVER.with(Mutex::default, |taking_over| {
            let _taking_over = taking_over.lock();
            let last = self.last();
            if last.process.load(Ordering::Relaxed) != here {
                match anew(&last.lock) {
                    None => last.process.store(here, Ordering::Release),
                    Some(lock) => {
                        let process = AtomicU64::new(here);
                        // No other thread sets it meanwhile.
                        drop(last.heir.set(Box::new(Self { process, lock, heir: OnceBox::new() })));
                    }
                }
            }
            &self.last().lock
        })
    }

    /// The lock of the youngest process that has used this.
    fn last(&self) -> &Self {
        let mut last = self;
        while let Some(heir) = last.heir.get() {
            last = heir;
        }
        last
    }
}

/// The lock of a value that a child goes on with. If a thread of the parent was changing it during the fork, the child makes it anew.
#[derive(Debug)]
pub struct InheritedMutex<T>(Inherited<Mutex<T>>);

impl<T> InheritedMutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(Inherited::new(Mutex::new(value)))
    }

    fn mutex(&self, make: impl FnOnce() -> T) -> &Mutex<T> {
        self.0.of_this_process(|held| held.try_lock().is_none().then(|| Mutex::new(make())))
    }

    /// Waits for the lock. `make` makes the value anew, if a child has to.
    #[inline(always)]
    pub fn lock_or(&self, make: impl FnOnce() -> T) -> MutexGuard<'_, T> {
        self.mutex(make).lock()
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock_or(&self, make: impl FnOnce() -> T) -> Option<MutexGuard<'_, T>> {
        self.mutex(make).try_lock()
    }
}

impl<T: Default> InheritedMutex<T> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_or(T::default)
    }
}

impl<T: Default> Default for InheritedMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Like [`InheritedMutex`], for a value that is read more often than it changes. A child copies a value that threads of
/// the parent read during the fork.
#[derive(Debug)]
pub(crate) struct InheritedRwLock<T>(Inherited<sync::RwLock<T>>);

impl<T: Clone + Default> InheritedRwLock<T> {
    fn lock(&self) -> &sync::RwLock<T> {
        self.0.of_this_process(|held| match (held.try_write(), held.try_read()) {
            (Ok(_) | Err(TryLockError::Poisoned(_)), _) => None,
            (_, Ok(read)) => Some(sync::RwLock::new(read.clone())),
            _ => Some(sync::RwLock::default()),
        })
    }

    #[inline]
    pub(crate) fn read(&self) -> sync::RwLockReadGuard<'_, T> {
        let guard = self.lock().read().unwrap_or_else(PoisonError::into_inner);
        note_locked();
        guard
    }

    pub(crate) fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        let guard = self.lock().write().unwrap_or_else(PoisonError::into_inner);
        note_locked();
        guard
    }
}

impl<T: Default> Default for InheritedRwLock<T> {
    fn default() -> Self {
        Self(Inherited::new(sync::RwLock::default()))
    }
}

#[cfg(not(all(feature = "bench", debug_assertions)))]
const fn note_locked() {}

#[cfg(all(feature = "bench", debug_assertions))]
use stepping::note_locked;

/// For the test that stops a thread with each lock that it takes.
#[cfg(all(feature = "bench", debug_assertions))]
pub mod stepping {
    use std::cell::Cell;
    use std::thread;
    use std::time::Duration;

    type Stop = Box<dyn FnOnce()>;

    thread_local! {
        /// The number of locks that this thread may take until it stops, and the call that stops it.
        static STOP: Cell<Option<(usize, Stop)>> = const { Cell::new(None) };
    }

    /// Calls `stop` on this thread when it has taken more than `locks` locks.
    pub fn stop_after(locks: usize, stop: impl FnOnce() + 'static) {
        STOP.set(Some((locks, Box::new(stop))));
    }

    /// The number of locks that were missing for the stop, or `None` if it has stopped.
    pub fn end() -> Option<usize> {
        STOP.take().map(|(locks, _)| locks)
    }

    pub(super) fn note_locked() {
        // A thread that is ending has no such value any more.
        match STOP.try_with(Cell::take).ok().flatten() {
            Some((0, stop)) => stop(),
            Some((left, stop)) => STOP.set(Some((left - 1, stop))),
            None => {}
        }
    }

    /// Sleeps until the condition holds.
    pub fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            thread::sleep(Duration::from_micros(200));
        }
    }
}
