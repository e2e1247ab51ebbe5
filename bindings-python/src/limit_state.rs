//! `LimitState`: the state of one limit in a Decision.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{dict_of, in_seconds};

pub(crate) const fn python_bool(truth: bool) -> &'static str {
    if truth { "True" } else { "False" }
}

pub(crate) fn python_number(value: Option<f64>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("{value:?}"))
}

/// The state of one limit in a Decision.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq, Eq)]
pub(crate) struct LimitState {
    pub(crate) inner: tidegate::LimitState,
}

#[pymethods]
impl LimitState {
    /// Its algorithm: "gcra", "sliding-window", …
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.inner.algorithm.name()
    }

    /// The unit that it counts, if it has one.
    #[getter]
    fn unit(&self) -> Option<&str> {
        self.inner.unit.as_ref().map(tidegate::Unit::name)
    }

    /// The units of it that the call asked for.
    #[getter]
    fn cost(&self) -> u64 {
        self.inner.cost
    }

    /// The most units that it ever admits at once.
    #[getter]
    fn limit(&self) -> u64 {
        self.inner.limit
    }

    /// Its period in seconds. For "concurrency", the ttl of holds.
    #[getter]
    fn period(&self) -> f64 {
        self.inner.period.micros() as f64 / 1e6
    }

    /// Units that it would admit now.
    #[getter]
    fn remaining(&self) -> u64 {
        self.inner.remaining
    }

    /// The units that are used beyond it, after a charge or after its numbers were lowered.
    #[getter]
    fn over(&self) -> u64 {
        self.inner.over
    }

    /// Seconds until it admits the cost: 0 when it does now, None for never.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.inner.retry_after.map(in_seconds)
    }

    /// Seconds until it admits the same cost again, also in a Decision that is allowed.
    #[getter]
    fn next_after(&self) -> Option<f64> {
        self.inner.next_after.map(in_seconds)
    }

    /// Seconds until it is as if it were unused.
    #[getter]
    fn reset_after(&self) -> f64 {
        in_seconds(self.inner.reset_after)
    }

    /// True if it denied the check.
    #[getter]
    fn exceeded(&self) -> bool {
        self.inner.exceeded
    }

    /// Its fields as a dict.
    #[pyo3(signature = () -> "dict[str, Any]")]
    pub(crate) fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(dict_of!(
            py, self, algorithm unit cost limit period remaining over retry_after next_after reset_after exceeded
        ))
    }

    fn __repr__(&self) -> String {
        format!(
            "LimitState(algorithm='{}', unit={}, cost={}, limit={}, period={:?}, remaining={}, over={}, retry_after={}, \
             next_after={}, reset_after={:?}, exceeded={})",
            self.algorithm(),
            self.unit().map_or_else(|| "None".to_owned(), |unit| format!("'{unit}'")),
            self.cost(),
            self.limit(),
            self.period(),
            self.remaining(),
            self.over(),
            python_number(self.retry_after()),
            python_number(self.next_after()),
            self.reset_after(),
            python_bool(self.exceeded()),
        )
    }
}
