//! The work of the module after a fork.

use pyo3::prelude::*;

/// Registered with `os.register_at_fork`. From then on the child does not use threads and connections of its parent.
#[pyfunction]
#[pyo3(signature = () -> "None")]
pub(crate) fn after_fork_in_child() {
    tidegate::after_fork_in_child();
    crate::python_call::forget_calls();
}
