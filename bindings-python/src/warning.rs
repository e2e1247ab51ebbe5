//! `Warning`.

use pyo3::prelude::*;

/// A part of a policy or a policy file that is valid but probably not intended.
#[pyclass(module = "tidegate", frozen, eq)]
#[derive(PartialEq, Eq)]
pub(crate) struct Warning {
    inner: tidegate::Warning,
}

#[pymethods]
impl Warning {
    /// The policy's name.
    #[getter]
    fn policy(&self) -> &str {
        &self.inner.policy
    }

    /// The problem, and the change that solves it.
    #[getter]
    fn message(&self) -> &str {
        &self.inner.message
    }

    /// The file. None for a policy from code.
    #[getter]
    fn file(&self) -> Option<&str> {
        self.inner.location.as_ref()?.file.as_deref()
    }

    /// The line, from 1.
    #[getter]
    fn line(&self) -> Option<usize> {
        Some(self.inner.location.as_ref()?.line)
    }

    /// The column, from 1.
    #[getter]
    fn column(&self) -> Option<usize> {
        Some(self.inner.location.as_ref()?.column)
    }

    /// The whole warning in one line.
    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Warning {}>", self.inner)
    }
}

pub(crate) fn listed(warnings: Vec<tidegate::Warning>) -> Vec<Warning> {
    warnings.into_iter().map(|inner| Warning { inner }).collect()
}
