//! Values that a process must make anew after a fork: threads do not survive it, and connections belong to the parent.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwapOption, Guard};

use crate::error::Result;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Without a lock, because a thread of the parent may be adding to it during the fork.
static LISTENERS: ArcSwapOption<Vec<Weak<dyn ForkListener>>> = ArcSwapOption::const_empty();

/// Makes a forked child begin anew, before anything else happens in it. It must not wait for a lock: no other thread
/// exists then, and a lock that one of the parent's threads held stays locked.
pub(crate) trait ForkListener: Send + Sync {
    fn forked(&self);
}

/// Notifies a listener of each fork, as long as it exists.
pub(crate) fn listen(listener: &Weak<dyn ForkListener>) {
    LISTENERS.rcu(|listeners| {
        let known = listeners.iter().flat_map(|listeners| &**listeners);
        let alive = known.filter(|listener| listener.strong_count() > 0).cloned();
        Some(Arc::new(alive.chain([Weak::clone(listener)]).collect::<Vec<_>>()))
    });
}

/// Call this in the child after a fork, before it uses limiters that its parent made. The Python module does so by
/// itself. A Rust program that forks has to call it.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let listeners = LISTENERS.load_full();
    listeners.iter().flat_map(|listeners| &**listeners).filter_map(Weak::upgrade).for_each(|one| one.forked());
}

/// The number of this process, which is the number of forks since the first ancestor.
#[must_use]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// The system's id of this process. WebAssembly has no processes, and asking for the id would panic.
pub(crate) fn id() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}

/// A value that each process makes on its first use. A child does not touch the value of its parent and does not even
/// drop it, because closing the parent's connections from there would end them.
pub(crate) struct PerProcess<T> {
    current: ArcSwapOption<ProcessValue<T>>,
}

/// A value, and the process that made it.
pub(crate) struct ProcessValue<T> {
    generation: u64,
    value: T,
}

impl<T> ProcessValue<T> {
    fn is_current(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Deref for ProcessValue<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: ArcSwapOption::const_empty() }
    }

    /// The value of this process, if it has made one.
    pub(crate) fn get(&self) -> Option<Arc<ProcessValue<T>>> {
        self.current.load_full().filter(|current| current.is_current())
    }

    /// Runs with the value of this process, and makes it first if it is missing. Counts no reference.
    #[inline]
    pub(crate) fn with<R>(&self, make: impl FnOnce() -> T, run: impl FnOnce(&T) -> R) -> R {
        let current = self.current.load();
        if let Some(current) = current.as_ref().filter(|current| current.is_current()) {
            return run(current);
        }
        drop(current);
        run(&self.get_or_init(make))
    }

    /// The value of this process. Makes it if it is missing.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> Arc<ProcessValue<T>> {
        let current = self.current.load();
        match current.as_ref().filter(|current| current.is_current()) {
            Some(current) => Arc::clone(current),
            None => self.keep(&current, make()),
        }
    }

    /// The value of this process. Makes it if it is missing. If several threads make one at once, one of theirs is
    /// kept.
    pub(crate) fn get_or_try_init(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<ProcessValue<T>>> {
        let current = self.current.load();
        if let Some(current) = current.as_ref().filter(|current| current.is_current()) {
            return Ok(Arc::clone(current));
        }
        Ok(self.keep(&current, make()?))
    }

    fn keep(&self, current: &Guard<Option<Arc<ProcessValue<T>>>>, value: T) -> Arc<ProcessValue<T>> {
        if let Some(other) = current.as_ref().filter(|other| other.is_current()) {
            return Arc::clone(other);
        }
        let made = Arc::new(ProcessValue { generation: generation(), value });
        let before = self.current.compare_and_swap(current, Some(Arc::clone(&made)));
        match before.as_ref() {
            Some(other) if other.is_current() => Arc::clone(other),
            Some(parents) => {
                // Never dropped: see above.
                std::mem::forget(Arc::clone(parents));
                made
            }
            None => made,
        }
    }
}
