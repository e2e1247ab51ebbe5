//! What happens to a task of the core when its future is cancelled.

use pyo3::intern;
use pyo3::prelude::*;
use tidegate::host::Task;

use super::LoopCompletions;
use crate::python_call::PythonCall;

/// Called by a future when it is done.
#[pyclass(module = "tidegate", frozen, name = "_CancellationCallback")]
pub(super) struct CancellationCallback {
    completions: Py<LoopCompletions>,
    ticket: u64,
    /// The task to cancel; none for one that must finish.
    task: Option<Task>,
}

impl CancellationCallback {
    pub(super) fn new(completions: Py<LoopCompletions>, ticket: u64, task: Option<Task>) -> Self {
        Self { completions, ticket, task }
    }
}

#[pymethods]
impl CancellationCallback {
    fn __call__(&self, py: Python<'_>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let _call = PythonCall::begin(py);
        if !future.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(());
        }
        if let Some(task) = &self.task {
            task.cancel();
        }
        self.completions.get().discard(self.ticket, self.task.is_none());
        Ok(())
    }
}
