//! The future of a call that has no answer yet. It is no `asyncio.Future`, because that continues the awaiting task by one
//! more callback of the event loop, which costs more than all the rest of the way back.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyTuple};
use tidegate::host::{Mutex, Task};

use super::LoopCompletions;
use crate::convert::returned;
use crate::python_call::PythonCall;

/// Has the methods that a task of asyncio calls. The task awaits it, so it is its only waiter.
#[pyclass(module = "tidegate", frozen, name = "_AnswerFuture")]
pub(crate) struct AnswerFuture {
    completions: Py<LoopCompletions>,
    /// Not locked while Python code runs, as the drop of an object may.
    state: Mutex<FutureState>,
    /// That it was yielded to a task, which resets this: the protocol of `await` between asyncio's tasks and futures.
    is_blocking: AtomicBool,
}

struct FutureState {
    started: Option<StartedTask>,
    answer: Option<Answer>,
    waiter: Option<Waiter>,
}

pub(super) type Answer = Result<Py<PyAny>, Py<PyBaseException>>;

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
        let state = Mutex::new(FutureState { started, answer: None, waiter: None });
        Self { completions, state, is_blocking: AtomicBool::new(false) }
    }

    /// Sets the answer, unless the future was cancelled. Returns the task to continue now.
    pub(super) fn set(&self, answer: Answer) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.answer.is_none() {
            state.answer = Some(answer);
        }
        state.waiter.take()
    }
}

/// Continues the task in the next iteration of the loop.
fn schedule(slf: &Bound<'_, AnswerFuture>, waiter: Waiter) -> PyResult<()> {
    let py = slf.py();
    let event_loop = slf.get().get_loop(py);
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
        let mut state = slf.get().state.lock();
        if state.answer.is_none() {
            let before = state.waiter.replace(waiter);
            drop(state);
            drop(before);
            return Ok(());
        }
        drop(state);
        let _call = PythonCall::begin(slf.py());
        schedule(slf, waiter)
    }

    #[getter]
    fn _asyncio_future_blocking(&self) -> bool {
        self.is_blocking.load(Ordering::Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, is_blocking: bool) {
        self.is_blocking.store(is_blocking, Ordering::Relaxed);
    }

    fn done(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let answer = match &self.state.lock().answer {
            Some(Ok(answer)) => Ok(answer.clone_ref(py)),
            Some(Err(error)) => Err(error.clone_ref(py)),
            None => return Err(PyRuntimeError::new_err("the answer has not arrived")),
        };
        answer.map_err(|error| PyErr::from_value(error.into_bound(py).into_any()))
    }

    /// Cancels it and its task of the core. The outcome of one that must finish is dropped when it arrives.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        static CANCELLED_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, future) = (slf.py(), slf.get());
        if future.done() {
            return Ok(false);
        }
        let _call = PythonCall::begin(py);
        let error = CANCELLED_ERROR.import(py, "asyncio", "CancelledError")?.call1(PyTuple::new(py, msg)?)?;
        let waiter = future.set(Err(error.cast_into::<PyBaseException>()?.unbind()));
        let started = future.state.lock().started.take();
        if let Some(StartedTask { ticket, task }) = started {
            if let Some(task) = &task {
                task.cancel();
            }
            future.completions.get().discard(ticket, task.is_none());
        }
        // The task that cancels runs now, so the waiting one cannot.
        waiter.map_or(Ok(()), |waiter| schedule(slf, waiter))?;
        Ok(true)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    pub(crate) fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let future = slf.get();
        if future.done() {
            return Err(future.result(slf.py()).map_or_else(|error| error, returned));
        }
        future.is_blocking.store(true, Ordering::Relaxed);
        Ok(slf.clone().into_any())
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.completions)?;
        // The collector may have stopped a thread that holds the lock. Then it frees these another time.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        if let Some(Waiter { wake, context }) = &state.waiter {
            visit.call(wake)?;
            visit.call(context)?;
        }
        match &state.answer {
            Some(Ok(answer)) => visit.call(answer),
            Some(Err(error)) => visit.call(error),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let mut state = self.state.lock();
        let cleared = (state.waiter.take(), state.answer.take());
        drop(state);
        drop(cleared);
    }
}
