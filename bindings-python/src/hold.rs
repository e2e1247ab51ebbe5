//! `Hold` and `AsyncHold`.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::decision::Decision;
use crate::pending::Pending;

/// The core's hold until it is given back, by whoever comes first. A copy of it in a forked child gives nothing back,
/// which the core sees to.
struct Held(Mutex<Option<tidegate::Hold>>);

impl Held {
    fn new(hold: tidegate::Hold) -> Self {
        Self(Mutex::new(Some(hold)))
    }

    fn take(&self) -> Option<tidegate::Hold> {
        self.0.lock().take()
    }

    fn is_held(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `with`.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct Hold {
    held: Held,
    decision: Py<Decision>,
}

impl Hold {
    pub(crate) fn new(py: Python<'_>, hold: tidegate::Hold) -> PyResult<Self> {
        let decision = Py::new(py, Decision::from(hold.decision().clone()))?;
        Ok(Self { held: Held::new(hold), decision })
    }
}

#[pymethods]
impl Hold {
    /// The Decision that let it in.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<Decision> {
        self.decision.clone_ref(py)
    }

    /// Whether it was given back.
    #[getter]
    fn released(&self) -> bool {
        !self.held.is_held()
    }

    /// Gives the units back; once, whoever calls it how often.
    #[pyo3(signature = () -> "None")]
    fn release(&self, py: Python<'_>) {
        if let Some(hold) = self.held.take() {
            py.detach(|| drop(hold));
        }
    }

    #[pyo3(signature = () -> "Hold")]
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error: "object") -> "None")]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) {
        self.release(py);
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        shown("Hold", &self.held, &self.decision, py)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(hold) = self.held.take() {
            // Giving back asks the store; nobody else should stand still meanwhile.
            let mut hold = Some(hold);
            Python::try_attach(|py| {
                let hold = hold.take();
                py.detach(move || drop(hold));
            });
        }
    }
}

/// Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `async with`.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct AsyncHold {
    held: Held,
    decision: Py<Decision>,
}

impl AsyncHold {
    pub(crate) fn new(py: Python<'_>, hold: tidegate::Hold) -> PyResult<Self> {
        let decision = Py::new(py, Decision::from(hold.decision().clone()))?;
        Ok(Self { held: Held::new(hold), decision })
    }
}

#[pymethods]
impl AsyncHold {
    /// The Decision that let it in.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<Decision> {
        self.decision.clone_ref(py)
    }

    /// Whether it was given back.
    #[getter]
    fn released(&self) -> bool {
        !self.held.is_held()
    }

    /// Gives the units back; once, whoever calls it how often. It is on its way at once, and needs no waiting for.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn release(&self, py: Python<'_>) -> Pending {
        drop(self.held.take());
        Pending::answered(py.None())
    }

    #[pyo3(signature = () -> "Coroutine[Any, Any, AsyncHold]")]
    fn __aenter__(slf: Bound<'_, Self>) -> Pending {
        Pending::answered(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_error: "object") -> "Coroutine[Any, Any, None]")]
    fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) -> Pending {
        self.release(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        shown("AsyncHold", &self.held, &self.decision, py)
    }
}

impl Drop for AsyncHold {
    fn drop(&mut self) {
        drop(self.held.take());
    }
}

fn shown(name: &str, held: &Held, decision: &Py<Decision>, py: Python<'_>) -> PyResult<String> {
    let inner = &decision.get().inner;
    let state = if held.is_held() { "held" } else { "released" };
    let (policy, key) = (pyo3::types::PyString::new(py, inner.policy()), pyo3::types::PyString::new(py, inner.key()));
    Ok(format!("<{name} {state} policy={} key={} cost={}>", policy.repr()?, key.repr()?, inner.cost()))
}
