//! The coroutine that a call of `AsyncLimiter` returns. It is written in Rust, because an `async def` costs three times
//! as much.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use tidegate::Result;
use tidegate::host::Mutex;
use tidegate::host::{Call, Outcome};

use crate::convert::{returned, utf8};
use crate::error::{raise, raise_about};
use crate::loop_completions::{AnswerFuture, ConvertOutcome, LoopCompletions, Posted};
use crate::loop_reader::LoopReader;
use crate::own_store::OwnStore;
use crate::policy_argument::PolicyArgument;
use crate::python_call::PythonCall;

/// A call that is made when it is awaited, like that of any `async def`.
///
/// An immediate answer is returned without an iteration of the event loop.
#[pyclass(module = "tidegate", frozen, weakref)]
pub(crate) struct CallCoroutine {
    /// The state is taken out while Python code runs, so that the lock never spans such code. Another thread then finds `Finished`.
    state: Mutex<State>,
}

enum State {
    /// A call with one Decision as its answer.
    Call {
        limiter: Arc<LoopReader>,
        policy: Py<PyAny>,
        key: Py<PyString>,
        call: Call,
        convert: ConvertOutcome,
    },
    /// Any other call. It takes its first step on this thread. If it `must_finish`, it cannot be cancelled after that.
    Task {
        task: Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>,
        /// The store of its limiter, if the loop has to make its calls.
        own_store: Option<Arc<OwnStore>>,
        convert: ConvertOutcome,
        must_finish: bool,
    },
    Started(Started),
    Finished,
}

/// A call that was made.
enum Started {
    /// `await` will return this.
    Answered(Py<PyAny>),
    /// This future will have the answer.
    Waiting(Py<AnswerFuture>),
}

impl CallCoroutine {
    /// A call with one Decision as its answer.
    #[inline]
    pub(crate) fn of_call(
        limiter: &Arc<LoopReader>,
        policy: &Bound<'_, PyAny>,
        key: Bound<'_, PyString>,
        call: Call,
        convert: ConvertOutcome,
    ) -> PyResult<Self> {
        // A wrong argument raises at the call, not at the `await`.
        PolicyArgument::of(policy)?;
        let limiter = Arc::clone(limiter);
        let policy = policy.clone().unbind();
        let key = key.unbind();
        Ok(Self { state: Mutex::new(State::Call { limiter, policy, key, call, convert }) })
    }

    /// Any other call.
    pub(crate) fn of_task(
        limiter: &tidegate::AsyncLimiter,
        convert: ConvertOutcome,
        must_finish: bool,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Self {
        let own_store = OwnStore::of(limiter);
        Self { state: Mutex::new(State::Task { task: Box::pin(task), own_store, convert, must_finish }) }
    }

    /// A task about a store without a limiter.
    pub(crate) fn of_store(
        own_store: Option<Arc<OwnStore>>,
        convert: ConvertOutcome,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Self {
        Self { state: Mutex::new(State::Task { task: Box::pin(task), own_store, convert, must_finish: false }) }
    }

    pub(crate) fn answered(answer: Py<PyAny>) -> Self {
        Self { state: Mutex::new(State::Started(Started::Answered(answer))) }
    }

    /// Puts a state in place of the present one, which it returns.
    #[inline]
    fn replace(&self, state: State) -> State {
        std::mem::replace(&mut *self.state.lock(), state)
    }

    /// Makes the call, unless that has happened before, and takes it out.
    #[inline]
    fn start(&self, py: Python<'_>) -> PyResult<Started> {
        let _call = PythonCall::begin(py);
        match self.replace(State::Finished) {
            State::Call { limiter, policy, key, call, convert } => {
                let (policy, key) = (policy.bind(py), key.bind(py));
                let (policy, key) = (PolicyArgument::of(policy)?, utf8(key)?);
                let completions = LoopCompletions::of_running_loop(py)?;
                limiter.use_from(&completions)?;
                if let Some(own_store) = OwnStore::of(&limiter.limiter) {
                    own_store.use_from(completions.get());
                }
                let posted = LoopCompletions::post(&completions, limiter, convert, |reader, ticket, queue, batch| {
                    reader.limiter.post(policy, key, &call, ticket, queue, batch)
                });
                match posted? {
                    Posted::Answered(answer) => {
                        let decision = answer.map_err(|error| raise_about(error, policy.text()))?;
                        Ok(Started::Answered(convert(py, Outcome::Decision(decision))?))
                    }
                    Posted::Future(future) => Ok(Started::Waiting(future)),
                }
            }
            State::Task { mut task, own_store, convert, must_finish } => {
                if let Some(own_store) = own_store {
                    own_store.use_from(LoopCompletions::of_running_loop(py)?.get());
                }
                // The first step runs here, because it begins sooner and a store in memory answers at once.
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                if let Poll::Ready(outcome) = task.as_mut().poll(&mut context) {
                    return Ok(Started::Answered(convert(py, outcome.map_err(raise)?)?));
                }
                let completions = LoopCompletions::of_running_loop(py)?;
                LoopCompletions::start_task(&completions, convert, must_finish, task).map(Started::Waiting)
            }
            State::Started(started) => Ok(started),
            State::Finished => Err(awaited_twice()),
        }
    }
}

#[cold]
fn awaited_twice() -> PyErr {
    PyRuntimeError::new_err("a call cannot be awaited twice: make it again, or keep its result")
}

/// True if the Python code that runs on this thread belongs to asyncio.
#[cold]
fn asked_by_asyncio(py: Python<'_>) -> PyResult<bool> {
    let frame = py.import("sys")?.call_method0("_getframe")?;
    let module = frame.getattr("f_globals")?.get_item("__name__")?;
    Ok(module.cast::<PyString>()?.to_str()?.starts_with("asyncio."))
}

#[pymethods]
impl CallCoroutine {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match slf.get().start(slf.py())? {
            // From here on the task awaits the future directly.
            Started::Waiting(future) => Ok(future.into_bound(slf.py()).into_any()),
            answered => {
                slf.get().replace(State::Started(answered));
                Ok(slf.clone().into_any())
            }
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.start(py)? {
            Started::Waiting(future) => {
                let next = AnswerFuture::__next__(future.bind(py)).map(Bound::unbind);
                self.replace(State::Started(Started::Waiting(future)));
                next
            }
            Started::Answered(answer) => Err(returned(answer)),
        }
    }

    /// Sends a value into it, as `send` of any coroutine.
    #[pyo3(signature = (value: "Any") -> "Any")]
    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(value.py())
    }

    /// Raises an error in it, as `throw` of any coroutine.
    #[pyo3(signature = (*error: "Any") -> "Any")]
    fn throw(&self, error: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        self.replace(State::Finished);
        // The argument is an exception or, in the older form, a class, its value and a traceback.
        let (kind, value) = (error.get_item(0)?, error.get_item(1).ok().filter(|value| !value.is_none()));
        let raised = match value {
            Some(value) if value.is_instance_of::<pyo3::exceptions::PyBaseException>() => value,
            Some(value) => kind.call1((value,))?,
            None if kind.is_instance_of::<pyo3::types::PyType>() => kind.call0()?,
            None => kind,
        };
        Err(PyErr::from_value(raised))
    }

    /// Ends it, as `close` of any coroutine.
    #[pyo3(signature = () -> "None")]
    fn close(&self) {
        self.replace(State::Finished);
    }

    /// A call that was not awaited has no answer. As a truth value it would admit every call.
    ///
    /// asyncio asks it too, for the `repr` of a task: a task has awaited it, or will.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        if asked_by_asyncio(py).unwrap_or_default() {
            return Ok(true);
        }
        Err(PyTypeError::new_err("this call was not awaited: write `await limiter.check(…)`"))
    }
}

impl Drop for CallCoroutine {
    fn drop(&mut self) {
        if !matches!(*self.state.lock(), State::Call { .. } | State::Task { .. }) {
            return;
        }
        Python::try_attach(|py| {
            let _call = PythonCall::begin(py);
            // An exception that is being raised must survive this.
            let raised = PyErr::take(py);
            let warned = PyErr::warn(
                py,
                &py.get_type::<PyRuntimeWarning>(),
                c"a call of AsyncLimiter was never awaited, so it was not made: write await before it",
                1,
            );
            if let Err(error) = warned {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}
