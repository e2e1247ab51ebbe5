//! The calls of `Limiter`. They run on the calling thread, and other threads have the interpreter while it waits.

use std::time::Duration;

use pyo3::prelude::*;
use tidegate::host::{ActualCosts, Answered, Call, RefusedJob};
use tidegate::http::Observation;
use tidegate::{Builder, CheckEntry, CheckOptions, HoldAnswer, KeyOverride, Result};

use super::{AsyncLimiter, Limiter, interruptible};
use crate::admission::Admission;
use crate::attempt::Attempt;
use crate::convert::{Key, in_seconds, utf8};
use crate::decision::Decision;
use crate::error::{RateLimited, raise, raise_about};
use crate::hold::Hold;
use crate::key_override::Override;
use crate::loop_reader::LoopReader;
use crate::outgoing_call::SharedCall;
use crate::policy_argument::PolicyArgument;
use crate::prepared_policy::AskedPolicy;

impl Limiter {
    pub(super) fn build(builder: Builder) -> PyResult<Self> {
        // It may wait for another process that repairs the file of its store.
        let inner = Python::attach(|py| py.detach(|| builder.build())).map_err(raise)?;
        Ok(Self { reader: LoopReader::new(inner.to_async()), inner })
    }

    pub(super) fn core(&self) -> &tidegate::Limiter {
        &self.inner
    }

    pub(super) fn blocking(&self) -> tidegate::Limiter {
        self.inner.clone()
    }

    pub(super) fn to_async_limiter(&self) -> AsyncLimiter {
        AsyncLimiter { reader: self.reader.clone() }
    }

    #[inline]
    pub(super) fn decide(&self, policy: &Bound<'_, PyAny>, key: Key<'_>, call: Call) -> PyResult<Decision> {
        self.call(policy.py(), PolicyArgument::of(policy)?, utf8(&key.0)?, &call)
    }

    pub(super) fn carry_out(&self, policy: &Bound<'_, PyAny>, key: Key<'_>, call: Call) -> PyResult<()> {
        self.decide(policy, key, call).map(drop)
    }

    /// Makes a call with one Decision as its answer.
    #[inline]
    pub(crate) fn call(
        &self,
        py: Python<'_>,
        policy: PolicyArgument<'_>,
        key: &str,
        call: &Call,
    ) -> PyResult<Decision> {
        let answer = match self.inner.try_immediate(policy, key, call) {
            Some(answer) => answer,
            None => py.detach(|| self.inner.call(policy, key, call)),
        };
        answer.map(Decision::from).map_err(|error| raise_about(error, policy.text()))
    }

    pub(super) fn settle_with(
        &self,
        py: Python<'_>,
        decision: &tidegate::Decision,
        actual: ActualCosts,
    ) -> PyResult<()> {
        self.detached(py, |limiter| limiter.settle_costs(decision, actual)).map_err(raise)
    }

    pub(crate) fn decide_all<E: CheckEntry>(
        &self,
        py: Python<'_>,
        entries: impl IntoIterator<Item = E> + Send,
    ) -> PyResult<Decision> {
        self.detached(py, |limiter| limiter.check_all(entries)).map(Decision::from).map_err(raise)
    }

    pub(super) fn admit_request(
        &self,
        py: Python<'_>,
        asked: Vec<AskedPolicy>,
        records_steps: bool,
    ) -> PyResult<Admission> {
        Admission::new(py, self.detached(py, |limiter| limiter.admit(&asked, records_steps)).map_err(raise)?)
    }

    pub(super) fn acquire_within(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        options: CheckOptions,
        timeout: Option<Duration>,
    ) -> PyResult<Decision> {
        let py = policy.py();
        let policy = PolicyArgument::of(policy)?;
        let key = utf8(&key.0)?;
        interruptible::acquire(py, &self.inner, policy, key, options, timeout).map(Decision::from)
    }

    pub(super) fn take_hold(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        options: CheckOptions,
        timeout: Option<Duration>,
    ) -> PyResult<Hold> {
        let py = policy.py();
        let policy = PolicyArgument::of(policy)?;
        let key = utf8(&key.0)?;
        match interruptible::hold(py, &self.inner, policy, key, options, timeout)? {
            HoldAnswer::Held(hold) => Hold::new(py, hold),
            denied => Err(RateLimited::new_err((Py::new(py, Decision::from(denied.decision().clone()))?,))),
        }
    }

    pub(super) fn take_turn(
        &self,
        py: Python<'_>,
        call: SharedCall,
        timeout: Option<Duration>,
        announces: bool,
    ) -> PyResult<Admission> {
        Admission::new(py, interruptible::turn(py, &self.inner, call, timeout, announces)?)
    }

    pub(super) fn read_refusal(
        &self,
        py: Python<'_>,
        call: SharedCall,
        given_at: Duration,
    ) -> PyResult<Option<Decision>> {
        let refusal = self.detached(py, |limiter| limiter.refused_since(&*call, given_at));
        refusal.map(|refusal| refusal.map(Decision::from)).map_err(raise)
    }

    pub(super) fn learn_from(
        &self,
        py: Python<'_>,
        call: SharedCall,
        observations: Vec<Observation>,
        answered: Answered,
    ) -> PyResult<()> {
        self.detached(py, |limiter| limiter.learn(&*call, observations, Some(answered))).map_err(raise)
    }

    pub(super) fn wait_of_job(&self, py: Python<'_>, job: &RefusedJob) -> PyResult<f64> {
        self.detached(py, |limiter| limiter.job_wait(job)).map(in_seconds).map_err(raise)
    }

    pub(super) fn read_journal(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<Vec<Attempt>> {
        let py = policy.py();
        let policy = PolicyArgument::of(policy)?;
        let key = utf8(&key.0)?;
        let attempts = self.detached(py, |limiter| limiter.journal(policy, key));
        attempts.map(Attempt::list).map_err(|error| raise_about(error, policy.text()))
    }

    pub(super) fn change_override(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        own: Option<KeyOverride>,
        ttl: Option<Duration>,
    ) -> PyResult<()> {
        let py = policy.py();
        let policy = PolicyArgument::of(policy)?;
        let key = utf8(&key.0)?;
        let changed = self.detached(py, |limiter| limiter.set_override(policy, key, own.as_ref(), ttl));
        changed.map_err(|error| raise_about(error, policy.text()))
    }

    pub(super) fn read_overrides(&self, policy: &Bound<'_, PyAny>) -> PyResult<Vec<Override>> {
        let py = policy.py();
        let policy = PolicyArgument::of(policy)?;
        let overrides = self.detached(py, |limiter| limiter.overrides(policy));
        overrides.map(Override::list).map_err(|error| raise_about(error, policy.text()))
    }

    pub(super) fn forget_all(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, tidegate::Limiter::clear_all).map_err(raise)
    }

    pub(super) fn ask_store(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, tidegate::Limiter::ping).map_err(raise)
    }

    pub(super) fn read_file_again(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.reload()).map_err(raise)
    }

    pub(super) fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.close());
        Ok(())
    }

    /// Runs a function that may wait for a store. If it may, other threads have the interpreter meanwhile.
    fn detached<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&tidegate::Limiter) -> Result<T> + Send) -> Result<T> {
        if self.inner.waits() { py.detach(|| run(&self.inner)) } else { run(&self.inner) }
    }
}
