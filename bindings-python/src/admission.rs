//! The answer to the limits of a request, for the web layers.

use std::time::Duration;

use pyo3::prelude::*;
use tidegate::host::{self, AskedStep, InheritedMutex, Outcome};

use crate::decision::Decision;
use crate::error::raise;
use crate::hold::give_back;

/// The answer to the limits of a request. Its holds are given back by `release`, or when it is dropped.
#[pyclass(module = "tidegate._tidegate", frozen)]
pub(crate) struct Admission {
    decision: Py<Decision>,
    refused_by: Option<usize>,
    by_service: bool,
    waits: bool,
    delay: Duration,
    steps: Vec<AskedStep>,
    holds: InheritedMutex<Vec<(usize, tidegate::Hold)>>,
}

impl Admission {
    pub(crate) fn new(py: Python<'_>, mut answer: host::Admission) -> PyResult<Self> {
        let (refused_by, delay, holds) = (answer.refused_by(), answer.delay(), answer.take_holds());
        let (by_service, waits, steps) = (answer.is_refused_by_service(), answer.waits(), answer.take_steps());
        for (_, hold) in &holds {
            // The hold may have waited for its loop while the limiter was closed.
            hold.check_open().map_err(raise)?;
        }
        let decision = Py::new(py, Decision::from(answer.into_decision()))?;
        Ok(Self { decision, refused_by, by_service, waits, delay, steps, holds: InheritedMutex::new(holds) })
    }

    pub(crate) fn from_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match outcome {
            Outcome::Admission(answer) => Ok(Py::new(py, Self::new(py, *answer)?)?.into_any()),
            _ => Ok(py.None()),
        }
    }
}

#[pymethods]
impl Admission {
    /// The denial of a refused request. An admitted one has a Decision of all policies, in the order in which they were asked.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<Decision> {
        self.decision.clone_ref(py)
    }

    /// The place of the policy that refused, among those that were asked.
    #[getter]
    const fn refused_by(&self) -> Option<usize> {
        self.refused_by
    }

    /// True if the service that a call goes to refuses it.
    #[getter]
    const fn by_service(&self) -> bool {
        self.by_service
    }

    /// True if a call that goes out is not refused yet, because it can wait and ask again.
    #[getter]
    const fn waits(&self) -> bool {
        self.waits
    }

    /// How many seconds an admitted request waits before it is served.
    #[getter]
    const fn delay(&self) -> f64 {
        self.delay.as_secs_f64()
    }

    /// In which steps the store was asked, where that was to be recorded: whether it was a hold, its Decision, and when it began and ended,
    /// in nanoseconds from the begin of the first.
    #[getter]
    fn steps(&self) -> Vec<(bool, Decision, u64, u64)> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let steps = self.steps.iter();
        steps.map(|step| (step.is_hold, step.decision.clone().into(), nanos(step.began), nanos(step.ended))).collect()
    }

    /// True where anything is held.
    #[getter]
    fn holds(&self) -> bool {
        !self.holds.lock().is_empty()
    }

    /// Gives back what is held for the policies at these places, or all that is held.
    #[pyo3(signature = (places: "Sequence[int] | None" = None) -> "None")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument of Python")]
    fn release(&self, py: Python<'_>, places: Option<Vec<usize>>) {
        let is_meant = |(place, _): &mut (usize, tidegate::Hold)| places.as_ref().is_none_or(|all| all.contains(place));
        let released: Vec<_> = self.holds.lock().extract_if(.., is_meant).collect();
        if !released.is_empty() {
            // Giving holds back calls the store. Other threads have the interpreter meanwhile.
            py.detach(|| drop(released));
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let held = std::mem::take(&mut *self.holds.lock());
        if !held.is_empty() {
            give_back(held);
        }
    }
}
