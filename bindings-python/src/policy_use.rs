//! `PolicyUse`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::raise_about;
use crate::policy_argument::PolicyArgument;

/// Marks a policy as used. While it exists, `reload` refuses a file without a policy of that name.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct PolicyUse(#[expect(dead_code, reason = "ends the use when it is dropped")] tidegate::PolicyUse);

impl PolicyUse {
    pub(crate) fn new(
        limiter: &tidegate::Limiter,
        policy: &Bound<'_, PyAny>,
        by: &Bound<'_, PyString>,
    ) -> PyResult<Self> {
        let policy = PolicyArgument::of(policy)?;
        let registered = limiter.use_policy(policy, &by.to_string_lossy());
        registered.map(Self).map_err(|error| raise_about(error, policy.text()))
    }
}
