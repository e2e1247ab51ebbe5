//! `lint` and its `Warning`.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::convert::path;
use crate::error::raise;

/// Something in a policy file that is valid but probably not intended.
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

    /// What is wrong, and what to change.
    #[getter]
    fn message(&self) -> &str {
        &self.inner.message
    }

    /// The file.
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

    /// All of it in one line.
    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<Warning {}>", self.inner)
    }
}

/// Reads a policy file and warns of what probably does not do what was intended.
///
/// The list is empty when nothing was found. A file that is not valid raises PolicyError.
#[pyfunction]
#[pyo3(signature = (path: "str | PathLike[str]") -> "list[Warning]")]
pub(crate) fn lint(#[pyo3(from_py_with = self::path)] path: PathBuf) -> PyResult<Vec<Warning>> {
    let file = tidegate::PolicyFile::read(path).map_err(raise)?;
    Ok(tidegate::lint(&file).into_iter().map(|inner| Warning { inner }).collect())
}
