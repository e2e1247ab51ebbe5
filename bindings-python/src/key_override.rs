//! `Override`.

use std::time::UNIX_EPOCH;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tidegate::OverriddenKey;
use tidegate::host::Outcome;

/// A key with an override.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Override {
    inner: OverriddenKey,
}

impl Override {
    pub(crate) fn list(overrides: Vec<OverriddenKey>) -> Vec<Self> {
        overrides.into_iter().map(|inner| Self { inner }).collect()
    }

    /// The result of `AsyncLimiter.overrides`.
    pub(crate) fn list_from_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Overrides(overrides) => Self::list(overrides).into_py_any(py),
            _ => Ok(py.None()),
        }
    }
}

#[pymethods]
impl Override {
    /// The key.
    #[getter]
    fn key(&self) -> &str {
        &self.inner.key
    }

    /// Its limits as a notation, or "none".
    #[getter]
    fn limits(&self) -> &str {
        &self.inner.limits
    }

    /// When it has the numbers of its policy again, in seconds since 1970; None where it keeps them.
    #[getter]
    fn expires_at(&self) -> Option<f64> {
        let at = self.inner.expires_at?;
        at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
    }

    /// Its fields as a dict.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("key", self.key())?;
        dict.set_item("limits", self.limits())?;
        dict.set_item("expires_at", self.expires_at())?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let expires = self.expires_at().map_or_else(|| "None".to_owned(), |at| format!("{at:?}"));
        format!("Override(key={:?}, limits={:?}, expires_at={expires})", self.key(), self.limits())
    }
}
