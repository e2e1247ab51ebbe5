//! `Attempt`.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use tidegate::host::Outcome;

/// One attempt in a journal.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Attempt {
    pub(crate) inner: tidegate::Attempt,
}

impl Attempt {
    pub(crate) fn list(attempts: Vec<tidegate::Attempt>) -> Vec<Self> {
        attempts.into_iter().map(|inner| Self { inner }).collect()
    }

    /// The result of `AsyncLimiter.journal`.
    pub(crate) fn list_from_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Attempts(attempts) => Self::list(attempts).into_py_any(py),
            _ => Ok(py.None()),
        }
    }
}

#[pymethods]
impl Attempt {
    /// When, in seconds since 1970.
    #[getter]
    fn at(&self) -> f64 {
        self.inner.at as f64 / 1e6
    }

    /// True if it was allowed.
    #[getter]
    fn allowed(&self) -> bool {
        self.inner.allowed
    }

    /// The units that it requested.
    #[getter]
    fn cost(&self) -> u64 {
        self.inner.cost
    }

    /// Its metadata, as text. Bytes that are not UTF-8 appear as `\xff`.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let decode = |bytes: Bound<'py, PyBytes>| {
            Ok(bytes.call_method1("decode", ("utf-8", "backslashreplace"))?.cast_into()?)
        };
        self.meta_bytes(py).map(decode).transpose()
    }

    /// Its metadata, byte for byte.
    #[getter]
    fn meta_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.inner.meta.as_ref().map(|meta| PyBytes::new(py, meta))
    }

    /// Its fields as a dict.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("at", self.at())?;
        dict.set_item("allowed", self.allowed())?;
        dict.set_item("cost", self.cost())?;
        dict.set_item("meta", self.meta(py)?)?;
        Ok(dict)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let meta =
            self.meta(py)?.map_or_else(|| Ok("None".to_owned()), |meta| meta.repr().map(|text| text.to_string()))?;
        let allowed = if self.inner.allowed { "True" } else { "False" };
        Ok(format!("Attempt(at={:?}, allowed={allowed}, cost={}, meta={meta})", self.at(), self.inner.cost))
    }
}
