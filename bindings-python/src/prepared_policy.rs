//! A policy at a place, prepared where a web layer declares it. A request adds its key and its cost.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use tidegate::http::placed_key;
use tidegate::{AsPolicy, CheckEntry, CheckOptions, PolicyRef};

use crate::convert::{cost, meta, priority, utf8};
use crate::policy_argument::{OwnedPolicy, PolicyArgument};

/// A policy of a request, without what the request itself says.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct PreparedPolicy(Arc<PolicyAtPlace>);

pub(crate) struct PolicyAtPlace {
    pub(crate) given: Py<PyAny>,
    pub(crate) policy: OwnedPolicy,
    pub(crate) place: Option<String>,
}

impl PolicyAtPlace {
    pub(crate) fn argument(&self) -> PolicyArgument<'_> {
        match &self.policy {
            OwnedPolicy::Text(text) => PolicyArgument::Text(text),
            OwnedPolicy::Policy(policy) => PolicyArgument::Policy(policy),
        }
    }
}

impl PreparedPolicy {
    pub(crate) const fn at_place(&self) -> &Arc<PolicyAtPlace> {
        &self.0
    }
}

#[pymethods]
impl PreparedPolicy {
    #[new]
    #[pyo3(signature = (policy: "str | Policy", place: "str | None"))]
    fn new(policy: &Bound<'_, PyAny>, place: Option<String>) -> PyResult<Self> {
        let (given, policy) = (policy.clone().unbind(), PolicyArgument::of(policy)?.into());
        Ok(Self(Arc::new(PolicyAtPlace { given, policy, place })))
    }

    /// The policy as it was given.
    #[getter]
    fn policy(&self, py: Python<'_>) -> Py<PyAny> {
        self.0.given.clone_ref(py)
    }
}

/// A policy of a request.
pub(crate) struct AskedPolicy {
    of: Arc<PolicyAtPlace>,
    key: String,
    options: CheckOptions,
}

impl CheckEntry for AskedPolicy {
    fn policy(&self) -> PolicyRef<'_> {
        self.of.policy.as_policy()
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn options(&self) -> CheckOptions {
        self.options.clone()
    }
}

impl AskedPolicy {
    /// Reads the policies of a request: each `(prepared, key, cost, meta, priority, method)`. The method is for a limit with a budget for
    /// each method.
    pub(crate) fn list(given: &Bound<'_, PyList>) -> PyResult<Vec<Self>> {
        given.iter().map(|one| Self::of(one.cast::<PyTuple>()?)).collect()
    }

    fn of(given: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let part = |place| given.get_item(place);
        let of = Arc::clone(part(0)?.cast::<PreparedPolicy>()?.get().at_place());
        let method: Option<String> = part(5)?.extract()?;
        let key = placed_key(of.place.as_deref(), method.as_deref(), utf8(part(1)?.cast::<PyString>()?)?);
        let cost = cost(&part(2)?)?;
        let options = CheckOptions { meta: meta(&part(3)?)?, priority: priority(&part(4)?)?, ..cost.into() };
        Ok(Self { of, key, options })
    }
}
