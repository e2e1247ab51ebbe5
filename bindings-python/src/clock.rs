//! `ManualClock`.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::convert::{in_seconds, named_seconds, number, seconds};
use crate::error::belongs_to_process;

/// A clock for tests. A limiter with such a clock uses its time instead of the store's.
///
/// Times are seconds since 1970. It stands still until `advance` or `set` moves it::
///
///     clock = ManualClock()
///     limiter = Limiter(clock=clock)
///     assert limiter.check("1/minute", "alice")
///     assert not limiter.check("1/minute", "alice")
///     clock.advance(63)
///     assert limiter.check("1/minute", "alice")
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct ManualClock {
    pub(crate) inner: Arc<tidegate::ManualClock>,
}

fn now(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    number("now", given)
}

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (now: "float" = 1_700_000_000.0))]
    fn new(#[pyo3(from_py_with = now)] now: f64) -> PyResult<Self> {
        Ok(Self { inner: Arc::new(tidegate::ManualClock::new(named_seconds("now", now)?)) })
    }

    /// The time, in seconds since 1970.
    #[pyo3(signature = () -> "float")]
    fn now(&self) -> f64 {
        in_seconds(self.inner.now())
    }

    /// Moves the clock forward by this number of seconds. Calls that wait for that time continue.
    #[pyo3(signature = (seconds: "float | timedelta") -> "None")]
    fn advance(&self, py: Python<'_>, #[pyo3(from_py_with = self::seconds)] seconds: std::time::Duration) {
        // This renews due holds on this thread, which may call a store.
        py.detach(|| self.inner.advance(seconds));
    }

    /// Sets the clock to a time in seconds since 1970. It may go back.
    #[pyo3(signature = (now: "float") -> "None")]
    fn set(&self, py: Python<'_>, #[pyo3(from_py_with = self::seconds)] now: std::time::Duration) {
        py.detach(|| self.inner.set(now));
    }

    #[pyo3(signature = () -> "NoReturn")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(belongs_to_process("ManualClock", "its time is shared by all that use it"))
    }

    fn __repr__(&self) -> String {
        format!("ManualClock(now={:?})", self.now())
    }
}
