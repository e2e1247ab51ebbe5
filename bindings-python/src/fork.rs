//! What the module does when the process was forked.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which process this is, counted from the first: a child is one further than its parent.
#[inline]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Registered with `os.register_at_fork`: what belongs to the parent is not used in the child.
#[pyfunction]
#[pyo3(signature = () -> "None")]
pub(crate) fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    tidegate::after_fork_in_child();
}
