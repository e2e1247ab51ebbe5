//! The calls of `AsyncLimiter`. Each returns a coroutine, which makes the call when it is awaited.

use std::time::Duration;

use pyo3::prelude::*;
use tidegate::host::{ActualCosts, Answered, Call, Outcome};
use tidegate::http::Observation;
use tidegate::{Builder, CheckOptions, HoldAnswer, KeyOverride, Result};

use super::{AsyncLimiter, Limiter};
use crate::admission::Admission;
use crate::attempt::Attempt;
use crate::call_coroutine::CallCoroutine;
use crate::convert::{Key, none_from_outcome, utf8};
use crate::decision::Decision;
use crate::error::raise;
use crate::hold::AsyncHold;
use crate::key_override::Override;
use crate::loop_completions::ConvertOutcome;
use crate::loop_reader::LoopReader;
use crate::outgoing_call::SharedCall;
use crate::policy_argument::{OwnedEntries, OwnedPolicy, PolicyArgument};
use crate::prepared_policy::AskedPolicy;

impl AsyncLimiter {
    pub(super) fn build(builder: Builder) -> PyResult<Self> {
        let inner = Python::attach(|py| py.detach(|| builder.build_async())).map_err(raise)?;
        Ok(Self { reader: LoopReader::new(inner) })
    }

    pub(super) fn core(&self) -> &tidegate::AsyncLimiter {
        &self.reader.limiter
    }

    pub(super) fn blocking(&self) -> tidegate::Limiter {
        self.core().to_blocking()
    }

    pub(super) fn to_blocking_limiter(&self) -> Limiter {
        Limiter { inner: self.blocking(), reader: self.reader.clone() }
    }

    pub(super) fn decide(&self, policy: &Bound<'_, PyAny>, key: Key<'_>, call: Call) -> PyResult<CallCoroutine> {
        CallCoroutine::of_call(&self.reader, policy, key.0, call, Decision::from_outcome)
    }

    pub(super) fn carry_out(&self, policy: &Bound<'_, PyAny>, key: Key<'_>, call: Call) -> PyResult<CallCoroutine> {
        CallCoroutine::of_call(&self.reader, policy, key.0, call, none_from_outcome)
    }

    pub(super) fn settle_with(
        &self,
        _py: Python<'_>,
        decision: &tidegate::Decision,
        actual: ActualCosts,
    ) -> PyResult<CallCoroutine> {
        let decision = decision.clone();
        // It must finish, because a cancelled one could settle only some of several entries.
        self.action(true, |limiter| async move { limiter.settle_costs(&decision, actual).await })
    }

    pub(super) fn decide_all(&self, _py: Python<'_>, entries: OwnedEntries) -> PyResult<CallCoroutine> {
        let limiter = self.core().clone();
        let checked = async move { limiter.check_all(entries).await.map(Outcome::Decision) };
        Ok(CallCoroutine::of_task(self.core(), Decision::from_outcome, true, checked))
    }

    pub(super) fn admit_request(
        &self,
        _py: Python<'_>,
        asked: Vec<AskedPolicy>,
        records_steps: bool,
    ) -> PyResult<CallCoroutine> {
        let limiter = self.core().clone();
        let admission = async move {
            limiter.admit(&asked, records_steps).await.map(|answer| Outcome::Admission(Box::new(answer)))
        };
        // The answer arrives even if the call was cancelled meanwhile. Then it gives its holds back at once.
        Ok(CallCoroutine::of_task(self.core(), Admission::from_outcome, true, admission))
    }

    pub(super) fn acquire_within(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        options: CheckOptions,
        timeout: Option<Duration>,
    ) -> PyResult<CallCoroutine> {
        self.task(policy, key, Decision::from_outcome, false, move |limiter, policy, key| async move {
            limiter.acquire_with(policy, &key, &options, timeout).await.map(Outcome::Decision)
        })
    }

    pub(super) fn take_hold(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        options: CheckOptions,
        timeout: Option<Duration>,
    ) -> PyResult<Py<PyAny>> {
        // A hold that does not wait arrives even if the call was cancelled meanwhile. Then it goes back at once.
        let must_finish = timeout == Some(Duration::ZERO);
        let pending =
            self.task(policy, key, AsyncHold::from_outcome, must_finish, move |limiter, policy, key| async move {
                Ok(match limiter.hold_within(policy, &key, &options, timeout).await? {
                    HoldAnswer::Held(hold) => Outcome::Hold(hold),
                    denied => Outcome::Decision(denied.decision().clone()),
                })
            })?;
        Ok(policy.py().import("tidegate._hold")?.getattr("Holding")?.call1((pending,))?.unbind())
    }

    pub(super) fn take_turn(
        &self,
        _py: Python<'_>,
        call: SharedCall,
        timeout: Option<Duration>,
        announces: bool,
    ) -> PyResult<CallCoroutine> {
        let limiter = self.core().clone();
        let turn = async move {
            limiter.turn(&*call, timeout, announces).await.map(|answer| Outcome::Admission(Box::new(answer)))
        };
        Ok(CallCoroutine::of_task(self.core(), Admission::from_outcome, false, turn))
    }

    pub(super) fn read_refusal(
        &self,
        _py: Python<'_>,
        call: SharedCall,
        given_at: Duration,
    ) -> PyResult<CallCoroutine> {
        let limiter = self.core().clone();
        let refusal = async move {
            let refusal = limiter.refused_since(&*call, given_at).await?;
            Ok(refusal.map_or(Outcome::Nothing, Outcome::Decision))
        };
        Ok(CallCoroutine::of_task(self.core(), Decision::from_outcome, false, refusal))
    }

    pub(super) fn learn_from(
        &self,
        _py: Python<'_>,
        call: SharedCall,
        observations: Vec<Observation>,
        answered: Answered,
    ) -> PyResult<CallCoroutine> {
        self.action(true, |limiter| async move { limiter.learn(&*call, observations, Some(answered)).await })
    }

    pub(super) fn read_journal(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<CallCoroutine> {
        self.task(policy, key, Attempt::list_from_outcome, true, |limiter, policy, key| async move {
            limiter.journal(policy, &key).await.map(Outcome::Attempts)
        })
    }

    pub(super) fn change_override(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        own: Option<KeyOverride>,
        ttl: Option<Duration>,
    ) -> PyResult<CallCoroutine> {
        self.task(policy, key, none_from_outcome, true, move |limiter, policy, key| async move {
            limiter.set_override(policy, &key, own.as_ref(), ttl).await.map(|()| Outcome::Nothing)
        })
    }

    pub(super) fn read_overrides(&self, policy: &Bound<'_, PyAny>) -> PyResult<CallCoroutine> {
        let (policy, limiter): (OwnedPolicy, _) = (PolicyArgument::of(policy)?.into(), self.core().clone());
        let read = async move { limiter.overrides(policy).await.map(Outcome::Overrides) };
        Ok(CallCoroutine::of_task(self.core(), Override::list_from_outcome, true, read))
    }

    pub(super) fn forget_all(&self, _py: Python<'_>) -> PyResult<CallCoroutine> {
        self.action(true, |limiter| async move { limiter.clear_all().await })
    }

    pub(super) fn ask_store(&self, _py: Python<'_>) -> PyResult<CallCoroutine> {
        self.action(true, |limiter| async move { limiter.ping().await })
    }

    pub(super) fn read_file_again(&self, _py: Python<'_>) -> PyResult<CallCoroutine> {
        // It reads a file, so it does not begin on the thread of the loop.
        self.action(false, |limiter| async move { limiter.reload() })
    }

    pub(super) fn end(&self, _py: Python<'_>) -> PyResult<CallCoroutine> {
        self.action(true, |limiter| async move {
            limiter.close_on_thread().await;
            Ok(())
        })
    }

    /// A task of the core that returns None.
    fn action<F>(&self, must_finish: bool, action: impl FnOnce(tidegate::AsyncLimiter) -> F) -> PyResult<CallCoroutine>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let action = action(self.core().clone());
        let task = async move { action.await.map(|()| Outcome::Nothing) };
        Ok(CallCoroutine::of_task(self.core(), none_from_outcome, must_finish, task))
    }

    /// A task of the core about one policy and key.
    fn task<F>(
        &self,
        policy: &Bound<'_, PyAny>,
        key: Key<'_>,
        convert: ConvertOutcome,
        must_finish: bool,
        task: impl FnOnce(tidegate::AsyncLimiter, OwnedPolicy, String) -> F,
    ) -> PyResult<CallCoroutine>
    where
        F: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let (policy, key) = (PolicyArgument::of(policy)?.into(), utf8(&key.0)?.to_owned());
        Ok(CallCoroutine::of_task(self.core(), convert, must_finish, task(self.core().clone(), policy, key)))
    }
}
