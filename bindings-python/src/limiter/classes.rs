//! Both limiters. `blocking.rs` and `asynchronous.rs` make their calls. A check of an `AsyncLimiter` is a coroutine, and no more.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use tidegate::host::{Answered, Call, RefusedJob};
use tidegate::{CheckOptions, Cost};

use super::methods::limiter_methods;
use super::{AsyncLimiter, Limiter};
use crate::admission::Admission;
use crate::attempt::Attempt;
use crate::call_coroutine::CallCoroutine;
use crate::convert::{
    Key, cost, length, meta, named_seconds, number, optional_seconds, path, percent, priority, timedelta_seconds, utf8,
};
use crate::costs::actual_costs;
use crate::decision::Decision;
use crate::error::{belongs_to_process, raise, raise_about};
use crate::hold::Hold;
use crate::key_override::Override;
use crate::observation::observations;
use crate::options::LimiterOptions;
use crate::outgoing_call::OutgoingCall;
use crate::policy::{Policy, key_override};
use crate::policy_argument::{PolicyArgument, entries, refuse_partial};
use crate::policy_use::PolicyUse;
use crate::prepared_policy::AskedPolicy;
use crate::stats::{counters, stats};

limiter_methods! {
    Limiter = "Limiter" {
        Decision = "Decision", () = "None", Vec<Attempt> = "list[Attempt]", Vec<Override> = "list[Override]", Hold = "Hold",
        Admission = "Admission", Option<Decision> = "Decision | None"
    }
    acquire:
    hold:
        /// Takes units of a "concurrency" limit: renewed while the Hold lives, given back by `release` or at the end of
        /// `with`. Waits for room at most `timeout` seconds, in the line of all who wait for the key; None is for as long as it takes.
        /// Raises RateLimited when there is none.
    limit:
        /// An async function is limited without blocking its event loop::
        ///
        ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
        ///     def send_mail(user, text): ...
    without_store:
    own {
        /// This limiter for event loops. Policies, usage and connections are shared.
        #[pyo3(signature = () -> "AsyncLimiter")]
        fn to_async(&self) -> AsyncLimiter {
            self.to_async_limiter()
        }

        /// The seconds until a refused job asks again. `usual_length` is the typical run time of jobs, if any has ended.
        #[pyo3(name = "_job_wait", signature = (
            decision: "Decision", came_back: "bool", usual_length: "float | None"
        ) -> "float")]
        fn job_wait(
            &self,
            py: Python<'_>,
            decision: &Bound<'_, Decision>,
            came_back: bool,
            #[pyo3(from_py_with = optional_seconds)] usual_length: Option<Duration>,
        ) -> PyResult<f64> {
            self.wait_of_job(py, &RefusedJob::of(&decision.get().inner, came_back, usual_length))
        }

        #[pyo3(signature = () -> "Limiter")]
        fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
            slf
        }

        #[pyo3(signature = (*_error: "object") -> "None")]
        fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
            self.end(py)
        }
    }
}

limiter_methods! {
    AsyncLimiter = "AsyncLimiter" {
        CallCoroutine = "Coroutine[Any, Any, Decision]", CallCoroutine = "Coroutine[Any, Any, None]",
        CallCoroutine = "Coroutine[Any, Any, list[Attempt]]",
        CallCoroutine = "Coroutine[Any, Any, list[Override]]", Py<PyAny> = "Holding",
        CallCoroutine = "Coroutine[Any, Any, Admission]", CallCoroutine = "Coroutine[Any, Any, Decision | None]"
    }
    acquire:
        /// One that is cancelled leaves the queue.
    hold:
        /// Takes units of a "concurrency" limit: renewed while the AsyncHold lives, given back by `release` or at the end of
        /// `async with`. Waits for room at most `timeout` seconds, in the line of all who wait for the key; None is for as long as it
        /// takes. Raises RateLimited when there is none::
        ///
        ///     async with limiter.hold("exports", "alice") as hold:
        ///         ...
    limit:
        /// A function that is not async is limited on the thread that calls it::
        ///
        ///     @limiter.limit("5/minute", key=lambda user, *args, **kwargs: user)
        ///     async def send_mail(user, text): ...
    without_store:
        /// Not awaitable: it needs no store.
    own {
        /// This limiter for threads. Policies, usage and connections are shared.
        #[pyo3(signature = () -> "Limiter")]
        fn to_blocking(&self) -> Limiter {
            self.to_blocking_limiter()
        }

        #[pyo3(signature = () -> "Coroutine[Any, Any, AsyncLimiter]")]
        fn __aenter__(slf: Bound<'_, Self>) -> CallCoroutine {
            CallCoroutine::answered(slf.into_any().unbind())
        }

        #[pyo3(signature = (*_error: "object") -> "Coroutine[Any, Any, None]")]
        fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<CallCoroutine> {
            self.end(py)
        }
    }
}
