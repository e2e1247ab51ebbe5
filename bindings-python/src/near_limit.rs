//! `NearLimit`, and its report to Python.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::teller::{Listener, Teller, tell};

/// A key has come near a limit. `on_near_limit` gets each policy and key at most once in a window.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct NearLimit {
    inner: tidegate::NearLimit,
}

#[pymethods]
impl NearLimit {
    /// The policy.
    #[getter]
    fn policy(&self) -> &str {
        &self.inner.policy
    }

    /// The key.
    #[getter]
    fn key(&self) -> &str {
        &self.inner.key
    }

    /// The limit that has the least left in proportion, as a notation.
    #[getter]
    fn notation(&self) -> &str {
        &self.inner.notation
    }

    /// The units of that limit.
    #[getter]
    const fn limit(&self) -> u64 {
        self.inner.limit
    }

    /// The units that are left of it.
    #[getter]
    const fn remaining(&self) -> u64 {
        self.inner.remaining
    }

    /// The seconds until all its units are back. Until then the policy and key are not told again.
    #[getter]
    fn reset_after(&self) -> f64 {
        self.inner.reset_after.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        let tidegate::NearLimit { policy, key, notation, remaining, .. } = &self.inner;
        format!("<NearLimit {policy:?} {key:?}: {remaining} left of {notation:?}>")
    }
}

/// Calls `on_near_limit`.
pub(crate) fn listener(on_near_limit: &Bound<'_, PyAny>) -> PyResult<Listener<tidegate::NearLimit>> {
    let teller = Teller::new("on_near_limit", Some(on_near_limit), |py, on_near_limit, near| {
        tell(py, "on_near_limit", on_near_limit, || Py::new(py, NearLimit { inner: near }));
    })?;
    Ok(Arc::new(move |near| teller.note(near.clone())))
}
