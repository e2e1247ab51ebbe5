//! The future of a call that has no answer yet. It is no `asyncio.Future`, because that continues the awaiting task by one
//! more callback of the event loop, which costs more than all the rest of the way back.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyTuple};
use tidegate::host::Task;

use super::LoopCompletions;
use crate::convert::returned;
use crate::python_call::PythonCall;

/// Has the methods that a task of asyncio calls. The task awaits it, so it is its only waiter.
#[pyclass(module = "tidegate", name = "_AnswerFuture")]
pub(crate) struct AnswerFuture {
    completions: Py<LoopCompletions>,
    started: Option<StartedTask>,
    answer: Option<PyResult<Py<PyAny>>>,
    waiter: Option<Waiter>,
    /// That it was yielded to a task, which resets this: the protocol of `await` between asyncio's tasks and futures.
    #[pyo3(get, set)]
    _asyncio_future_blocking: bool,
}

/// The callback that continues the waiting task, and the context to run it in.
pub(super) struct Waiter {
    pub(super) wake: Py<PyAny>,
    pub(super) context: Py<PyAny>,
}

/// A task of the core. The future waits for its outcome.
pub(super) struct StartedTask {
    pub(super) ticket: u64,
    /// Cancels the task. `None` for a task that must finish.
    pub(super) task: Option<Task>,
}

impl AnswerFuture {
    pub(super) fn new(completions: Py<LoopCompletions>, started: Option<StartedTask>) -> Self {
        Self { completions, started, answer: None, waiter: None, _asyncio_future_blocking: false }
    }

    /// Sets the answer, unless the future was cancelled. Returns the task to continue now.
    pub(super) fn set(&mut self, answer: PyResult<Py<PyAny>>) -> Option<Waiter> {
        if self.answer.is_none() {
            self.answer = Some(answer);
        }
        self.waiter.take()
    }
}

/// Continues the task in the next iteration of the loop.
fn schedule(slf: &Bound<'_, AnswerFuture>, waiter: Waiter) -> PyResult<()> {
    let py = slf.py();
    let event_loop = slf.borrow().get_loop(py);
    let named = [("context", waiter.context)].into_py_dict(py)?;
    event_loop.bind(py).call_method(intern!(py, "call_soon"), (waiter.wake, slf), Some(&named)).map(drop)
}

#[pymethods]
impl AnswerFuture {
    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.completions.get().event_loop.clone_ref(py)
    }

    #[pyo3(signature = (wake, *, context))]
    fn add_done_callback(slf: &Bound<'_, Self>, wake: Py<PyAny>, context: Py<PyAny>) -> PyResult<()> {
        let waiter = Waiter { wake, context };
        if slf.borrow().done() {
            let _call = PythonCall::begin(slf.py());
            return schedule(slf, waiter);
        }
        slf.borrow_mut().waiter = Some(waiter);
        Ok(())
    }

    fn done(&self) -> bool {
        self.answer.is_some()
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.answer {
            Some(Ok(answer)) => Ok(answer.clone_ref(py)),
            Some(Err(error)) => Err(error.clone_ref(py)),
            None => Err(PyRuntimeError::new_err("the answer has not arrived")),
        }
    }

    /// Cancels it and its task of the core. The outcome of one that must finish is dropped when it arrives.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        static CANCELLED_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        if slf.borrow().done() {
            return Ok(false);
        }
        let _call = PythonCall::begin(py);
        let error = CANCELLED_ERROR.import(py, "asyncio", "CancelledError")?.call1(PyTuple::new(py, msg)?)?;
        let mut future = slf.borrow_mut();
        let (waiter, started) = (future.set(Err(PyErr::from_value(error))), future.started.take());
        drop(future);
        if let Some(StartedTask { ticket, task }) = started {
            if let Some(task) = &task {
                task.cancel();
            }
            slf.borrow().completions.get().discard(ticket, task.is_none());
        }
        // The task that cancels runs now, so the waiting one cannot.
        waiter.map_or(Ok(()), |waiter| schedule(slf, waiter))?;
        Ok(true)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    pub(crate) fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let mut future = slf.borrow_mut();
        if future.done() {
            return Err(future.result(slf.py()).map_or_else(|error| error, returned));
        }
        future._asyncio_future_blocking = true;
        Ok(slf.clone().into_any())
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.completions)?;
        if let Some(Waiter { wake, context }) = &self.waiter {
            visit.call(wake)?;
            visit.call(context)?;
        }
        match &self.answer {
            Some(Ok(answer)) => visit.call(answer),
            _ => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        (self.waiter, self.answer) = (None, None);
    }
}
