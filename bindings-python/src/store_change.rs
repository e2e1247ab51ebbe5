//! `StoreChange`, and its report to Python.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use pyo3::prelude::*;
use tidegate::StoreState;

use crate::log;
use crate::teller::{Listener, Teller, tell};

/// A store was lost, refuses calls, or is back. Each change is reported once.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct StoreChange {
    inner: tidegate::StoreChange,
}

#[pymethods]
impl StoreChange {
    /// The store's URL, without secrets.
    #[getter]
    fn store(&self) -> &str {
        &self.inner.store
    }

    /// One of "lost", "refusing" and "back".
    #[getter]
    fn state(&self) -> &str {
        self.inner.state.name()
    }

    /// The event and its cause, in one sentence.
    #[getter]
    fn message(&self) -> &str {
        &self.inner.sentence
    }

    /// When the outage began, also for "back": seconds since 1970.
    #[getter]
    fn since(&self) -> f64 {
        self.inner.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<StoreChange {}: {}>", self.inner.state.name(), self.inner.sentence)
    }
}

/// Logs each change, then calls `on_change`, if there is one.
pub(crate) fn listener(on_change: Option<&Bound<'_, PyAny>>) -> PyResult<Listener<tidegate::StoreChange>> {
    let teller = Teller::new("on_change", on_change, |py, on_change, change: tidegate::StoreChange| {
        let level = if matches!(change.state, StoreState::Back) { "info" } else { "warning" };
        log::write(py, level, &change.sentence);
        tell(py, "on_change", on_change, || Py::new(py, StoreChange { inner: change }));
    })?;
    Ok(Arc::new(move |change| teller.note(change.clone())))
}
