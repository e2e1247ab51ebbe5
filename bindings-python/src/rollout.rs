//! `rollout`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::store_url;
use crate::error::raise;

/// Two stores and a share of the keys: the store of a limiter.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct Rollout {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) percent: f64,
}

#[pymethods]
impl Rollout {
    /// The share of the keys that use the new store, from 0 to 100.
    #[getter]
    fn percent(&self) -> f64 {
        self.percent
    }

    // Leaves out the URLs, which may contain passwords.
    fn __repr__(&self) -> String {
        format!("<Rollout {:?} %>", self.percent)
    }
}

/// Moves from an old store to a new one: `percent` of the keys use the new one, always the same keys.
///
/// Give it to a limiter as its store. `limiter.set_rollout(percent)` changes the share at once. Usage is not copied from
/// one store to the other::
///
///     limiter = Limiter(rollout("redis://old", "redis://new", 5))
#[pyfunction]
#[pyo3(signature = (old_url: "str", new_url: "str", percent: "float") -> "Rollout")]
pub(crate) fn rollout(
    old_url: &Bound<'_, PyString>,
    new_url: &Bound<'_, PyString>,
    #[pyo3(from_py_with = crate::convert::percent)] percent: f64,
) -> PyResult<Rollout> {
    tidegate::host::check_percent(percent).map_err(raise)?;
    Ok(Rollout { old: store_url(old_url)?.to_owned(), new: store_url(new_url)?.to_owned(), percent })
}
