//! The counters of a limiter as a dict, for exporters of metrics.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use tidegate::host::COUNTERS;

/// The counters, under the names that all languages share.
pub(crate) fn counters<'py>(py: Python<'py>, counters: &tidegate::Counters) -> PyResult<Bound<'py, PyDict>> {
    COUNTERS.iter().map(|counter| (counter.name, (counter.value)(counters))).into_py_dict(py)
}
