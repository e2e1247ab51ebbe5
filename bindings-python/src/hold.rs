//! `Hold` and `AsyncHold`.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tidegate::Cost;
use tidegate::host::InheritedMutex;
use tidegate::host::Outcome;

use crate::call_coroutine::CallCoroutine;
use crate::convert::{cost, none_from_outcome, shortened};
use crate::decision::Decision;
use crate::error::{RateLimited, raise};

/// The common part of both kinds of holds: the core's hold until it is given back, and the Decision that admitted it. The
/// core makes sure that a copy in a forked child gives nothing back.
struct HeldUnits {
    hold: InheritedMutex<Option<tidegate::Hold>>,
    decision: Py<Decision>,
    /// Settles the Decision.
    limiter: tidegate::AsyncLimiter,
    /// True if the hold was lost when it was given back.
    was_lost: AtomicBool,
}

impl HeldUnits {
    fn new(py: Python<'_>, hold: tidegate::Hold) -> PyResult<Self> {
        // The hold may have waited for its thread or loop while the limiter was closed.
        hold.check_open().map_err(raise)?;
        let decision = Py::new(py, Decision::from(hold.decision().clone()))?;
        let limiter = hold.limiter();
        Ok(Self { hold: InheritedMutex::new(Some(hold)), decision, limiter, was_lost: AtomicBool::new(false) })
    }

    /// Takes the hold out. Its drop gives it back.
    fn take(&self) -> Option<tidegate::Hold> {
        let mut held = self.hold.lock();
        let hold = held.take()?;
        // Before another thread finds no hold.
        self.was_lost.store(hold.lost(), Ordering::Relaxed);
        Some(hold)
    }

    fn is_lost(&self) -> bool {
        let hold = self.hold.lock();
        hold.as_ref().map_or_else(|| self.was_lost.load(Ordering::Relaxed), tidegate::Hold::lost)
    }

    fn is_released(&self) -> bool {
        self.hold.lock().is_none()
    }

    fn repr(&self, py: Python<'_>, class: &str) -> PyResult<String> {
        let decision = &self.decision.get().inner;
        let state = if self.is_released() { "released" } else { "held" };
        let (policy, key) = (shortened(py, decision.policy()), shortened(py, decision.key()));
        Ok(format!("<{class} {state} policy={policy} key={key} cost={}>", decision.cost()))
    }
}

/// The methods of a hold: the ones that both kinds have, and the ones of this kind.
macro_rules! hold_methods {
    ($Class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $Class {
            /// The Decision that admitted it.
            #[getter]
            fn decision(&self, py: Python<'_>) -> Py<Decision> {
                self.0.decision.clone_ref(py)
            }

            /// True if the units went back.
            #[getter]
            fn released(&self) -> bool {
                self.0.is_released()
            }

            /// True if others may have the units now: the store did not have the hold at a renewal, or no
            /// renewal has succeeded for its ttl. It stays true. Tidegate logs and counts a failed renewal, and
            /// tries again. If it succeeds in time, the hold is not lost.
            #[getter]
            fn lost(&self) -> bool {
                self.0.is_lost()
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                self.0.repr(py, stringify!($Class))
            }

            $($own)*
        }
    };
}

/// Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `with`.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct Hold(HeldUnits);

impl Hold {
    pub(crate) fn new(py: Python<'_>, hold: tidegate::Hold) -> PyResult<Self> {
        HeldUnits::new(py, hold).map(Self)
    }
}

hold_methods! { Hold {
    /// After the work: charges or refunds the difference between what the other limits were charged and the actual cost, once: a number, or
    /// numbers by the names of units. Those that it does not name stay as they are, and so does what is held.
    #[pyo3(signature = (actual_cost: "int | Mapping[str, int]") -> "None")]
    fn settle(&self, py: Python<'_>, #[pyo3(from_py_with = cost)] actual_cost: Cost) -> PyResult<()> {
        let (limiter, decision) = (self.0.limiter.to_blocking(), &self.0.decision.get().inner);
        py.detach(|| limiter.settle(decision, actual_cost)).map_err(raise)
    }

    /// Gives the units back. Further calls have no effect.
    #[pyo3(signature = () -> "None")]
    fn release(&self, py: Python<'_>) {
        if let Some(hold) = self.0.take() {
            py.detach(|| drop(hold));
        }
    }

    #[pyo3(signature = () -> "Hold")]
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error: "object") -> "None")]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.release(py);
    }
}}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take() {
            give_back(hold);
        }
    }
}

/// Gives back the units of a dropped object. This calls the store, and other threads have the interpreter meanwhile.
pub(crate) fn give_back(held: impl Send) {
    let mut held = Some(held);
    Python::try_attach(|py| {
        let held = held.take();
        py.detach(move || drop(held));
    });
}

/// Units of a "concurrency" limit in use: renewed while it lives, given back by `release` or at the end of `async with`.
#[pyclass(module = "tidegate", frozen)]
pub(crate) struct AsyncHold(HeldUnits);

impl AsyncHold {
    /// The result of `AsyncLimiter.hold`. It raises `RateLimited` for a denial.
    pub(crate) fn from_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Hold(hold) => Ok(Py::new(py, Self(HeldUnits::new(py, hold)?))?.into_any()),
            Outcome::Decision(decision) => Err(RateLimited::new_err((Py::new(py, Decision::from(decision))?,))),
            _ => Ok(py.None()),
        }
    }
}

hold_methods! { AsyncHold {
    /// After the work: charges or refunds the difference between what the other limits were charged and the actual cost, once: a number, or
    /// numbers by the names of units. Those that it does not name stay as they are, and so does what is held.
    #[pyo3(signature = (actual_cost: "int | Mapping[str, int]") -> "Coroutine[Any, Any, None]")]
    fn settle(&self, #[pyo3(from_py_with = cost)] actual_cost: Cost) -> CallCoroutine {
        let (limiter, decision) = (self.0.limiter.clone(), self.0.decision.get().inner.clone());
        // It must finish, because the Decision counts as settled from now on.
        CallCoroutine::of_task(&limiter.clone(), none_from_outcome, true, async move {
            limiter.settle(&decision, actual_cost).await.map(|()| Outcome::Nothing)
        })
    }

    /// Gives the units back, at once and also when it is not awaited. Further calls have no effect.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn release(&self, py: Python<'_>) -> CallCoroutine {
        drop(self.0.take());
        CallCoroutine::answered(py.None())
    }

    #[pyo3(signature = () -> "Coroutine[Any, Any, AsyncHold]")]
    fn __aenter__(slf: Bound<'_, Self>) -> CallCoroutine {
        CallCoroutine::answered(slf.into_any().unbind())
    }

    #[pyo3(signature = (*_error: "object") -> "Coroutine[Any, Any, None]")]
    fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> CallCoroutine {
        self.release(py)
    }
}}
