//! `StoreChange`, and the thread that reports it to Python.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tidegate::StoreState;
use tidegate::host::InheritedMutex;

use crate::convert::shown;
use crate::log;
use crate::python_call::PythonCall;

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

/// A listener in the form that the core needs.
pub(crate) type Listener = Arc<dyn Fn(&tidegate::StoreChange) + Send + Sync>;

/// The changes that Python has not heard of yet, and the process with the thread that reports them.
#[derive(Default)]
struct Untold {
    changes: VecDeque<tidegate::StoreChange>,
    told_by: Option<u32>,
}

/// Logs each change, then calls `on_change`, if there is one. A separate thread does this and lives while it has changes to
/// report, because the thread that noticed a change must not wait for the interpreter or for user code.
pub(crate) fn listener(on_change: Option<&Bound<'_, PyAny>>) -> PyResult<Listener> {
    if let Some(given) = on_change.filter(|given| !given.is_callable()) {
        return Err(PyTypeError::new_err(format!(
            "argument 'on_change' must be a function of a StoreChange, not {}",
            shown(given)
        )));
    }
    let (on_change, untold) =
        (on_change.map(|given| given.clone().unbind()), Arc::new(InheritedMutex::<Untold>::default()));
    let on_change = Arc::new(on_change);
    Ok(Arc::new(move |change| {
        let mut waiting = untold.lock();
        waiting.changes.push_back(change.clone());
        // The thread of a parent process does not exist in its child.
        if waiting.told_by == Some(process::id()) {
            return;
        }
        let (on_change, untold) = (Arc::clone(&on_change), Arc::clone(&untold));
        let thread = std::thread::Builder::new().name("tidegate-log".to_owned());
        // If no thread starts, the next change tries again.
        waiting.told_by = thread.spawn(move || tell_all(&untold, &on_change)).is_ok().then(process::id);
    }))
}

fn tell_all(untold: &InheritedMutex<Untold>, on_change: &Option<Py<PyAny>>) {
    loop {
        let change = {
            let mut waiting = untold.lock();
            let Some(change) = waiting.changes.pop_front() else {
                waiting.told_by = None;
                return;
            };
            change
        };
        // When the process ends, there is no interpreter any more.
        Python::try_attach(|py| tell(py, on_change.as_ref(), change));
    }
}

fn tell(py: Python<'_>, on_change: Option<&Py<PyAny>>, change: tidegate::StoreChange) {
    let level = if matches!(change.state, StoreState::Back) { "info" } else { "warning" };
    log::write(py, level, &change.sentence);
    let Some(on_change) = on_change else { return };
    let _call = PythonCall::begin(py);
    let told = Py::new(py, StoreChange { inner: change }).and_then(|change| on_change.call1(py, (change,)));
    if let Err(error) = told {
        log::write_exception(py, "on_change raised an exception", error);
    }
}
