//! What a call of `AsyncLimiter` returns: a coroutine in all but name, without the price of one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use tidegate::Result;
use tidegate::host::{Call, HostAsyncLimiter, Outcome};

use crate::asynchronous::AsyncLimiter;
use crate::convert::{PolicyArgument, utf8};
use crate::error::{raise, raise_about};
use crate::inbox::{Asked, Inbox, Want};
use crate::reading::Reading;

/// What a task of the core is to do. Behind a lock nobody ever waits for: objects of Python's are shared by threads.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

/// A call that is made when it is awaited, like that of any `async def`.
///
/// An answer that is at hand is returned without a turn of the event loop.
#[pyclass(module = "tidegate", weakref)]
pub(crate) struct Pending {
    state: State,
}

enum State {
    /// A call that one Decision answers.
    Call {
        limiter: Arc<Reading>,
        policy: Py<PyAny>,
        key: Py<PyString>,
        call: Call,
        want: Want,
    },
    /// Anything else. What `must_end` is begun on this thread, and not cancelled any more.
    Work {
        work: Mutex<Work>,
        want: Want,
        must_end: bool,
    },
    /// What `await` is to return.
    Answered(Py<PyAny>),
    /// The iterator of the future that will have the answer.
    Waits(Py<PyAny>),
    Over,
}

impl Pending {
    #[inline]
    pub(crate) fn call(
        limiter: &AsyncLimiter,
        policy: &Bound<'_, PyAny>,
        key: Bound<'_, PyString>,
        call: Call,
    ) -> Self {
        let want = if matches!(call, Call::Refund(_)) { Want::Nothing } else { Want::Decision };
        let limiter = Arc::clone(&limiter.reading);
        Self { state: State::Call { limiter, policy: policy.clone().unbind(), key: key.unbind(), call, want } }
    }

    pub(crate) fn work(
        want: Want,
        must_end: bool,
        work: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Self {
        Self { state: State::Work { work: Mutex::new(Box::pin(work)), want, must_end } }
    }

    pub(crate) fn answered(answer: Py<PyAny>) -> Self {
        Self { state: State::Answered(answer) }
    }

    /// Makes the call, if it was not made yet.
    #[inline]
    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        let asked = match std::mem::replace(&mut self.state, State::Over) {
            State::Call { limiter, policy, key, call, want } => {
                let (policy, key) = (policy.bind(py), key.bind(py));
                let (policy, key) = (PolicyArgument::of(policy)?, utf8(key)?);
                let inbox = Inbox::of_running_loop(py)?;
                limiter.asked_by(&inbox)?;
                let asked = inbox.get().ask(py, limiter, want, |limiter, ticket, home, batch| {
                    limiter.post(policy, key, &call, ticket, home, batch)
                });
                match asked? {
                    Asked::Answered(answer) => {
                        let decision = answer.map_err(|error| raise_about(error, policy.text()))?;
                        State::Answered(want.object(py, Outcome::Decision(decision))?)
                    }
                    Asked::Waits(future) => State::Waits(future.bind(py).try_iter()?.into_any().unbind()),
                }
            }
            State::Work { work, want, must_end } => {
                let mut work = work.into_inner();
                if must_end {
                    // It is on its way sooner, and of a store in memory the answer is at hand.
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    if let Poll::Ready(outcome) = work.as_mut().poll(&mut context) {
                        self.state = State::Answered(want.object(py, outcome.map_err(raise)?)?);
                        return Ok(());
                    }
                }
                let future = Inbox::start(&Inbox::of_running_loop(py)?, want, must_end, work)?;
                State::Waits(future.bind(py).try_iter()?.into_any().unbind())
            }
            State::Over => return Err(PyRuntimeError::new_err("cannot await the same call twice")),
            begun => begun,
        };
        self.state = asked;
        Ok(())
    }
}

#[pymethods]
impl Pending {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut pending = slf.borrow_mut();
        pending.start(py)?;
        if let State::Waits(future) = &pending.state {
            // From here on the loop deals with its own future and nothing else.
            let future = future.bind(py).clone();
            pending.state = State::Over;
            return Ok(future);
        }
        Ok(slf.clone().into_any())
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.start(py)?;
        match &self.state {
            State::Waits(future) => future.call_method0(py, intern!(py, "__next__")),
            _ => match std::mem::replace(&mut self.state, State::Over) {
                State::Answered(answer) => Err(PyStopIteration::new_err((answer,))),
                _ => Err(PyRuntimeError::new_err("cannot await the same call twice")),
            },
        }
    }

    /// As of any coroutine.
    #[pyo3(signature = (value: "Any") -> "Any")]
    fn send(&mut self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match &self.state {
            State::Waits(future) => future.call_method1(py, intern!(py, "send"), (value,)),
            _ => self.__next__(py),
        }
    }

    /// As of any coroutine.
    #[pyo3(signature = (*error: "Any") -> "Any")]
    fn throw(&mut self, error: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let py = error.py();
        if let State::Waits(future) = &self.state {
            return future.call_method1(py, intern!(py, "throw"), error.clone());
        }
        self.state = State::Over;
        // One who gives a class and not an exception uses the old form, which has a second and third argument.
        let (kind, value) = (error.get_item(0)?, error.get_item(1).ok().filter(|value| !value.is_none()));
        let raised = match value {
            Some(value) if value.is_instance_of::<pyo3::exceptions::PyBaseException>() => value,
            Some(value) => kind.call1((value,))?,
            None if kind.is_instance_of::<pyo3::types::PyType>() => kind.call0()?,
            None => kind,
        };
        Err(PyErr::from_value(raised))
    }

    /// As of any coroutine.
    #[pyo3(signature = () -> "None")]
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waits(future) => future.call_method0(py, intern!(py, "close")).map(drop),
            _ => Ok(()),
        }
    }

    /// A call that was not awaited is no answer, and would let everybody through.
    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err("this call was not awaited: write `await limiter.check(…)`"))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !matches!(self.state, State::Call { .. } | State::Work { .. }) {
            return;
        }
        Python::try_attach(|py| {
            // Whatever is being raised while this object goes away must not be lost.
            let raised = PyErr::take(py);
            let warned = PyErr::warn(
                py,
                &py.get_type::<PyRuntimeWarning>(),
                c"a call of AsyncLimiter was never awaited: nothing was asked",
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
