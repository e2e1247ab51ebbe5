//! `lint` and its `Warning`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tidegate::ErrorKind;

use crate::convert::{path, text};
use crate::error::{raise, raise_about};
use crate::policy::{Policy, named_policies};

/// Something in a policy or a policy file that is valid but probably not intended.
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

    /// The file; None for a policy that was given in code.
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

/// Warns of what probably does not do what was intended.
///
/// It takes the path of a policy file, a notation such as "10/10s; 600/600s", a Policy, or policies by name as a limiter
/// takes them. A text that ends like the name of a file is a path. The list is empty when nothing was found. What is not
/// valid raises PolicyError.
#[pyfunction]
#[pyo3(signature = (source: "str | PathLike[str] | Policy | Mapping[str, Any]") -> "list[Warning]")]
pub(crate) fn lint(source: &Bound<'_, PyAny>) -> PyResult<Vec<Warning>> {
    let warnings = if let Ok(policy) = source.cast::<Policy>() {
        policy.get().inner.lint()
    } else if let Ok(given) = source.cast::<PyString>() {
        let given = text(given, ErrorKind::PolicyInvalid, "the path or the notation")?;
        tidegate::host::lint_text(given).map_err(|error| raise_about(error, Some(given)))?
    } else if source.is_instance_of::<PyDict>() || source.hasattr("items")? {
        tidegate::lint_policies(&named_policies(source)?)
    } else {
        tidegate::lint(&tidegate::PolicyFile::read(path(source)?).map_err(raise)?)
    };
    Ok(listed(warnings))
}

pub(crate) fn listed(warnings: Vec<tidegate::Warning>) -> Vec<Warning> {
    warnings.into_iter().map(|inner| Warning { inner }).collect()
}
