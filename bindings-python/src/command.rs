//! The command `tidegate`, for the script of the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments, which begin with its name. Returns the exit code.
#[pyfunction]
#[pyo3(signature = (arguments: "list[str]", /))]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| tidegate_cli::run(arguments))
}
