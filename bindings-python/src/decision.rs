//! `Decision`. It computes a field when Python reads it.

use std::time::UNIX_EPOCH;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use tidegate::host::Outcome;

use crate::convert::{dict_of, in_seconds, key, shortened, utf8};
use crate::error::raise;
use crate::limit_state::{LimitState, python_bool, python_number};
use crate::policy::Policy;

/// The answer to a check, as data. A denial is a Decision, never an error. In a condition it is true exactly if it is allowed.
///
/// Times are seconds.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct Decision {
    pub(crate) inner: tidegate::Decision,
}

impl From<tidegate::Decision> for Decision {
    #[inline]
    fn from(inner: tidegate::Decision) -> Self {
        Self { inner }
    }
}

impl Decision {
    /// The result of the `AsyncLimiter` calls that return a Decision.
    #[inline]
    pub(crate) fn from_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Decision(decision) => Ok(Py::new(py, Self::from(decision))?.into_any()),
            _ => Ok(py.None()),
        }
    }
}

#[pymethods]
impl Decision {
    /// True if the check was admitted.
    #[getter]
    fn allowed(&self) -> bool {
        self.inner.allowed()
    }

    /// The policy's name.
    #[getter]
    fn policy(&self) -> &str {
        self.inner.policy()
    }

    /// The key.
    #[getter]
    fn key(&self) -> &str {
        self.inner.key()
    }

    /// The units that were requested.
    #[getter]
    fn cost(&self) -> u64 {
        self.inner.cost()
    }

    /// The consumed units: `cost` or 0. With `partial` it may be between, and for a charge it is the cost. `settle` starts from it.
    #[getter]
    fn granted(&self) -> u64 {
        self.inner.granted()
    }

    /// The most units that the binding limit ever admits at once. The binding limit is the one that denied, or else the one
    /// with the smallest share left.
    #[getter]
    fn limit(&self) -> u64 {
        self.inner.limit()
    }

    /// Units that the binding limit would admit now.
    #[getter]
    fn remaining(&self) -> u64 {
        self.inner.remaining()
    }

    /// Seconds until the same check is admitted if no other call uses the key: 0 when allowed, None for never.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.inner.retry_after().map(in_seconds)
    }

    /// Seconds until the same check is admitted again, also when allowed: 0 for at once, None for never.
    #[getter]
    fn next_after(&self) -> Option<f64> {
        self.inner.next_after().map(in_seconds)
    }

    /// Seconds until the binding limit is as if it were unused and the key has no block.
    #[getter]
    fn reset_after(&self) -> f64 {
        in_seconds(self.inner.reset_after())
    }

    /// The moment at which `reset_after` ends, in seconds since 1970: the same in all calls until units are consumed.
    #[getter]
    fn reset_at(&self) -> f64 {
        in_seconds(self.inner.reset_at().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// For a leaky-bucket: the seconds to wait before the work begins.
    #[getter]
    fn delay(&self) -> f64 {
        in_seconds(self.inner.delay())
    }

    /// The state of each limit, in the order of the policy.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let states = self.inner.limits().map(|inner| LimitState { inner }.into_pyobject(py));
        PyTuple::new(py, states.collect::<PyResult<Vec<_>>>()?)
    }

    /// One Decision for each entry of a check_all. Empty otherwise.
    #[getter]
    fn decisions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let each = self.inner.decisions().iter().map(|one| Self { inner: one.clone() }.into_pyobject(py));
        PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    /// The source of the answer: "store", "deny-cache", "lease" or "fallback".
    #[getter]
    fn source(&self) -> &'static str {
        self.inner.source().name()
    }

    /// True if a shadow policy would have denied the call.
    #[getter]
    fn shadow(&self) -> bool {
        self.inner.shadow()
    }

    /// True if it is denied because the store failed (on_store_error "closed"), and not by a limit. A web layer then
    /// answers 503 instead of 429.
    #[getter]
    fn unavailable(&self) -> bool {
        self.inner.unavailable()
    }

    /// True if it is denied by a block after repeated denials, of a policy with several times in block_for. It is false for a block
    /// that was made by hand.
    #[getter]
    fn abnormal(&self) -> bool {
        self.inner.abnormal()
    }

    /// True if the key has an override, which gave the answer. `limits` has its limits. A key with "none" is always allowed.
    #[getter]
    fn overridden(&self) -> bool {
        self.inner.overridden()
    }

    /// True if a limit that a service reported gave the answer to an outgoing call.
    #[getter]
    fn learned(&self) -> bool {
        self.inner.learned()
    }

    /// Its fields as a dict of plain values, ready for JSON.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = dict_of!(
            py, self, allowed policy key cost granted limit remaining retry_after next_after reset_after reset_at delay
        );
        let limits = self.inner.limits().map(|inner| LimitState { inner }.as_dict(py));
        dict.set_item("limits", limits.collect::<PyResult<Vec<_>>>()?)?;
        dict.set_item("source", self.source())?;
        dict.set_item("shadow", self.shadow())?;
        dict.set_item("unavailable", self.unavailable())?;
        dict.set_item("abnormal", self.abnormal())?;
        dict.set_item("overridden", self.overridden())?;
        dict.set_item("learned", self.learned())?;
        if !self.inner.decisions().is_empty() {
            let each = self.inner.decisions().iter().map(|one| Self { inner: one.clone() }.as_dict(py));
            dict.set_item("decisions", each.collect::<PyResult<Vec<_>>>()?)?;
        }
        Ok(dict)
    }

    #[inline]
    fn __bool__(&self) -> bool {
        self.inner.allowed()
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        self.as_dict(py)?.eq(other.get().as_dict(py)?)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
        let one = &self.inner;
        let fields = (one.policy(), one.key(), one.cost(), one.allowed(), one.remaining(), one.reset_at());
        BuildHasherDefault::<DefaultHasher>::default().hash_one(fields)
    }

    // A Decision does not change, and a copy would be another Decision that could be settled again.
    #[pyo3(signature = () -> "Decision")]
    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_memo: "object") -> "Decision")]
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = () -> "tuple[object, ...]")]
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let parts = tidegate::host::Parts::of(&self.inner);
        let policy = Policy { inner: parts.policy };
        let arguments =
            (policy, parts.key, parts.cost, parts.granted, PyTuple::new(py, parts.numbers)?, self.decisions(py)?);
        Ok((py.import("tidegate._tidegate")?.getattr("restore_decision")?, arguments).into_pyobject(py)?.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!(
            "Decision(allowed={}, policy={}, key={}, cost={}, granted={}, limit={}, remaining={}, retry_after={}, \
             next_after={}, reset_after={:?}",
            python_bool(self.allowed()),
            shortened(py, self.policy()),
            shortened(py, self.key()),
            self.cost(),
            self.granted(),
            self.limit(),
            self.remaining(),
            python_number(self.retry_after()),
            python_number(self.next_after()),
            self.reset_after(),
        );
        if self.delay() > 0.0 {
            text += &format!(", delay={:?}", self.delay());
        }
        if self.shadow() {
            text += ", shadow=True";
        }
        if self.unavailable() {
            text += ", unavailable=True";
        }
        if self.learned() {
            text += ", learned=True";
        }
        if self.source() != "store" {
            text += &format!(", source='{}'", self.source());
        }
        Ok(text + ")")
    }
}

/// Makes a pickled Decision again, from what its `__reduce__` returned.
#[pyfunction]
#[pyo3(signature = (
    policy: "Policy", key: "str", cost: "int", granted: "int", numbers: "tuple[int, ...]",
    decisions: "tuple[Decision, ...]"
) -> "Decision")]
pub(crate) fn restore_decision(
    policy: &Bound<'_, Policy>,
    #[pyo3(from_py_with = key)] key: Bound<'_, PyString>,
    cost: u64,
    granted: u64,
    numbers: Vec<u64>,
    decisions: Vec<Bound<'_, Decision>>,
) -> PyResult<Decision> {
    let decisions = decisions.iter().map(|one| tidegate::host::Parts::of(&one.get().inner)).collect();
    let (policy, key) = (policy.get().inner.clone(), utf8(&key)?.to_owned());
    let parts = tidegate::host::Parts { policy, key, cost, granted, numbers, decisions };
    parts.into_decision().map(Decision::from).map_err(raise)
}
