//! A call that goes out, for the clients in Python.

use std::sync::Arc;

use pyo3::prelude::*;
use tidegate::{CheckOptions, Cost};

use crate::convert::{Key, cost, priority, utf8};
use crate::policy_argument::{OwnedPolicy, PolicyArgument};

/// The request of an outgoing call to its limits. `origin` is the key for waits that the service imposes on all its callers, if it is
/// not `key`.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct OutgoingCall {
    call: SharedCall,
    /// The policy as it was given.
    #[pyo3(get)]
    policy: Py<PyAny>,
}

pub(crate) type SharedCall = Arc<tidegate::host::OutgoingCall<OwnedPolicy>>;

impl OutgoingCall {
    pub(crate) fn shared(&self) -> SharedCall {
        Arc::clone(&self.call)
    }
}

#[pymethods]
impl OutgoingCall {
    #[new]
    #[pyo3(signature = (policy: "Policy", key: "str", origin: "str | None", cost: "int | Mapping[str, int]", priority: "str | None"))]
    fn new(
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        origin: Option<Key<'_>>,
        #[pyo3(from_py_with = cost)] cost: Cost,
        #[pyo3(from_py_with = priority)] priority: Option<String>,
    ) -> PyResult<Self> {
        let (given, key) = (policy.clone().unbind(), utf8(&key.0)?.to_owned());
        let policy = PolicyArgument::of(policy)?.into();
        let origin = origin.map(|origin| utf8(&origin.0).map(str::to_owned)).transpose()?;
        let options = CheckOptions { priority, ..cost.into() };
        let call = Arc::new(tidegate::host::OutgoingCall::new(policy, key, origin, options));
        Ok(Self { call, policy: given })
    }
}
