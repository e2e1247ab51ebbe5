//! Calls from this module into Python code, and the end of the interpreter.
//!
//! Before 3.14 the interpreter ends daemon threads when it exits: it unwinds the stack of each one that asks for its lock. Python
//! code asks for the lock every few milliseconds. If this module has called that code, the unwinding frees objects without the
//! lock, and the process aborts. So the exit waits until such calls end, and threads begin no further ones.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long the exit waits for running calls, and a call for the exit. Code that runs at exit may wait for a daemon thread, so
/// that thread has to go on at some time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of running calls of Python code.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static EXIT: OnceLock<InterpreterExit> = OnceLock::new();

struct InterpreterExit {
    thread: ThreadId,
    began: Instant,
}

/// A part of this module that calls Python code. It lasts until the drop.
pub(crate) struct PythonCall(());

impl PythonCall {
    #[inline]
    pub(crate) fn begin(py: Python<'_>) -> Self {
        // `before_exit` reads the counter and the cell in the other order, so one of the two sees the other.
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self(());
        match EXIT.get() {
            Some(exit) if exit.thread != thread::current().id() => call.after(py, exit),
            _ => call,
        }
    }

    #[cold]
    fn after(self, py: Python<'_>, exit: &InterpreterExit) -> Self {
        drop(self);
        // The interpreter ends meanwhile, and this thread with it.
        py.detach(|| thread::sleep(PATIENCE.saturating_sub(exit.began.elapsed())));
        CALLS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for PythonCall {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registered with `atexit`. Returns when no other thread is inside of Python code that this module has called.
#[pyfunction]
#[pyo3(signature = () -> "None")]
pub(crate) fn before_exit(py: Python<'_>) {
    let exit = EXIT.get_or_init(|| InterpreterExit { thread: thread::current().id(), began: Instant::now() });
    while CALLS.load(Ordering::SeqCst) > 0 && exit.began.elapsed() < PATIENCE {
        py.detach(|| thread::sleep(Duration::from_millis(1)));
    }
}

/// Forgets the calls of other threads, which are gone in a forked child.
pub(crate) fn forget_calls() {
    CALLS.store(0, Ordering::SeqCst);
}
