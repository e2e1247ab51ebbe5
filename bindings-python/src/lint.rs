//! `lint`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tidegate::ErrorKind;

use crate::convert::{path, text};
use crate::error::{raise, raise_about};
use crate::policy::{Policy, named_policies};
use crate::warning::{Warning, listed};

/// Warns about limits and options that probably do not have the intended effect.
///
/// It takes the path of a policy file, a notation such as "10/10s; 600/600s", a Policy, or policies by name as a limiter
/// takes them. A text that ends like the name of a file is a path. The list is empty if nothing was found. An invalid
/// policy raises PolicyError.
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
