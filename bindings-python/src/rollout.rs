//! `rollout`.

use pyo3::prelude::*;

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

    // Without the URLs, which may contain passwords.
    fn __repr__(&self) -> String {
        format!("<Rollout {:?} %>", self.percent)
    }
}

/// Moves from an old store to a new one: `percent` of the keys use the new one, always the same keys.
///
/// Give it to a limiter as its store; `limiter.set_rollout(percent)` changes the share at once. Usage is not copied from
/// one store to the other::
///
///     limiter = Limiter(rollout("redis://old", "redis://new", 5))
#[pyfunction]
#[pyo3(signature = (old_url: "str", new_url: "str", percent: "float") -> "Rollout")]
pub(crate) fn rollout(old_url: String, new_url: String, percent: f64) -> Rollout {
    Rollout { old: old_url, new: new_url, percent }
}
