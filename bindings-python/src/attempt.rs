//! `Attempt`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

/// One attempt that a journal remembers.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Attempt {
    pub(crate) inner: tidegate::Attempt,
}

#[pymethods]
impl Attempt {
    /// When, in seconds since 1970.
    #[getter]
    fn at(&self) -> f64 {
        self.inner.at as f64 / 1e6
    }

    /// Whether it was allowed.
    #[getter]
    fn allowed(&self) -> bool {
        self.inner.allowed
    }

    /// The units it asked for.
    #[getter]
    fn cost(&self) -> u64 {
        self.inner.cost
    }

    /// What the caller said of it, as text; bytes that are no UTF-8 are shown as `\xff`.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let decode = |bytes: Bound<'py, PyBytes>| {
            Ok(bytes.call_method1("decode", ("utf-8", "backslashreplace"))?.cast_into()?)
        };
        self.meta_bytes(py).map(decode).transpose()
    }

    /// What the caller said of it, byte for byte.
    #[getter]
    fn meta_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.inner.meta.as_ref().map(|meta| PyBytes::new(py, meta))
    }

    /// The same as a dict.
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
