//! What a process must make anew after it was forked: threads do not survive, and connections are the parent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::error::Result;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// To be called in the child after a fork, before limiters made by the parent are used there. Python's module does so
/// by itself; a Rust program that forks calls it.
pub fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Which process this is, counted from the first ancestor that said so.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Something made by its first use in each process. What a parent made is not touched in its child, not even dropped:
/// a farewell from there would end the parent's connections.
pub(crate) struct PerProcess<T> {
    made: ArcSwapOption<(u64, T)>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { made: ArcSwapOption::const_empty() }
    }

    /// What was made in this process, if anything was.
    pub(crate) fn get(&self) -> Option<Arc<(u64, T)>> {
        self.made.load_full().filter(|made| made.0 == generation())
    }

    /// Runs with what was made in this process, made now where it is missing. Costs no count of references.
    #[inline]
    pub(crate) fn with<R>(&self, make: impl FnOnce() -> T, run: impl FnOnce(&T) -> R) -> R {
        let current = self.made.load();
        if let Some(made) = current.as_ref().filter(|made| made.0 == generation()) {
            return run(&made.1);
        }
        drop(current);
        run(&self.get_or_init(make).1)
    }

    fn get_or_init(&self, make: impl FnOnce() -> T) -> Arc<(u64, T)> {
        let current = self.made.load();
        self.keep(&current, make())
    }

    /// The same, made now where it is missing. When several make it at once, one of theirs is kept.
    pub(crate) fn get_or_try_init(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<(u64, T)>> {
        let current = self.made.load();
        if let Some(made) = current.as_ref().filter(|made| made.0 == generation()) {
            return Ok(Arc::clone(made));
        }
        Ok(self.keep(&current, make()?))
    }

    fn keep(&self, current: &Guard<Option<Arc<(u64, T)>>>, made: T) -> Arc<(u64, T)> {
        if let Some(others) = current.as_ref().filter(|others| others.0 == generation()) {
            return Arc::clone(others);
        }
        let made = Arc::new((generation(), made));
        let before = self.made.compare_and_swap(current, Some(Arc::clone(&made)));
        match before.as_ref() {
            Some(others) if others.0 == generation() => Arc::clone(others),
            Some(parents) => {
                // Never dropped: see above.
                std::mem::forget(Arc::clone(parents));
                made
            }
            None => made,
        }
    }
}
