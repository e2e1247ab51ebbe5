//! The way of every call about one policy and key. A [`Call`] has its arguments, and a [`Waits`] is its way to
//! wait. In between, [`LimiterCore::call`] finds the policy, asks the store, counts the answer, wakes callers that wait
//! for returned units, and makes the Decision.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::WaitQueues;
use super::cost::{Cost, valid_cost};
use super::learned_waits::LearnedWaits;
use super::observe::{Answered, ObservedCall};
use super::operations::{CheckOptions, block_operation, check_operation, of_cost, peek_operation, unheld_operation};
use super::overrides::REPETITIONS;
use super::policy_ref::AsPolicy;
use super::spans::{SpanName, end, may_be_on, spanned, tell_denial};
use super::translation::{AskedOperation, Asking};
use super::{Limiter, LimiterCore, LimiterId};
use crate::counting::DecisionCounts;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::http::Observation;
use crate::plan::Plan;
use crate::process::waits::Waits;
use crate::resilience::{KnownOverrides, ask, submit, try_immediate};
use crate::store::Store;
use crate::store::batch_guard::BatchGuard;
use crate::store::call_context::CallContext;
use crate::store::completion::WakeTarget;
use crate::store::request::{Answer, Attempt, Entry, Operation, OwnedEntry};

/// A call about one policy and key, with a Decision as its answer.
#[derive(Debug, Clone)]
pub enum Call {
    /// Asks and consumes so many units of each limit. Nearly every call is this one, and it is moved often, so it is small.
    Plain(u64),
    /// Asks and consumes, with other options.
    Check(Box<CheckOptions>),
    /// A check of any policy that never gives back its units of a `concurrency` limit, as if its caller had ended. For
    /// simulations, because their requests take no time.
    Unheld(Box<CheckOptions>),
    /// Asks about so many units of each limit without consuming them.
    PlainPeek(u64),
    /// The same, with other options.
    Peek(Box<CheckOptions>),
    /// Consumes even past the limit.
    Charge(Cost),
    /// Gives units back.
    Refund(Cost),
    /// Learns from a response.
    Observe(Box<ObservedCall>),
    /// Denies the key for that long.
    Block(Duration),
    /// Ends a block.
    Unblock,
    /// Forgets the usage and ends a block.
    Clear,
}

impl Call {
    /// A check with options.
    #[inline(always)]
    #[must_use]
    pub fn check(options: CheckOptions) -> Self {
        match options {
            CheckOptions { cost, units, meta: None, partial: false, priority: None } if units.is_none() => {
                Self::Plain(cost)
            }
            options => Self::check_with(options),
        }
    }

    /// Learns from the response to a call. `answered` is the Decision of the call.
    #[must_use]
    pub fn observe(observations: Vec<Observation>, answered: Option<&Decision>) -> Self {
        Self::answered(observations, answered.map(Answered::of))
    }

    /// The same, for a Decision that the host did not keep.
    #[must_use]
    pub fn answered(observations: Vec<Observation>, answered: Option<Answered>) -> Self {
        Self::Observe(Box::new(ObservedCall::new(observations, answered)))
    }

    /// A peek with options.
    #[inline]
    #[must_use]
    pub fn peek(options: CheckOptions) -> Self {
        match options {
            CheckOptions { cost, units, meta: None, partial: false, priority: None } if units.is_none() => {
                Self::PlainPeek(cost)
            }
            options => Self::Peek(Box::new(options)),
        }
    }

    /// Out of line, so that a plain check makes no options.
    #[cold]
    fn check_with(options: CheckOptions) -> Self {
        Self::Check(Box::new(options))
    }

    /// The span of a call that decides, if a subscriber may want it.
    #[inline]
    fn span_name(&self) -> Option<SpanName> {
        if !may_be_on() {
            return None;
        }
        match self {
            Self::Plain(_) | Self::Check(_) => Some(SpanName::Check),
            Self::Charge(_) => Some(SpanName::Charge),
            _ => None,
        }
    }

    #[inline]
    fn operation(&self, plan: &Plan) -> Result<Operation> {
        Ok(match self {
            Self::Plain(cost) if plan.is_plain => Operation::check(valid_cost(*cost)?),
            Self::Plain(cost) => check_operation(&CheckOptions::of_cost(*cost), plan)?,
            Self::Check(options) => check_operation(options, plan)?,
            Self::Unheld(options) => unheld_operation(options, plan)?,
            Self::PlainPeek(cost) if !plan.has_units => Operation::Peek { cost: valid_cost(*cost)?, details: None },
            Self::PlainPeek(cost) => peek_operation(&CheckOptions::of_cost(*cost), plan)?,
            Self::Peek(options) => peek_operation(options, plan)?,
            Self::Charge(cost) => of_cost(cost, plan, |cost, details| Operation::Charge { cost, details })?,
            Self::Refund(cost) => of_cost(cost, plan, |cost, details| Operation::Refund { cost, details })?,
            Self::Observe(observed) => observed.operation(plan),
            Self::Block(length) => block_operation(*length)?,
            Self::Unblock => Operation::Block { micros: 0 },
            Self::Clear => Operation::Clear,
        })
    }
}

/// A caller that goes on: the batch that its call is sent with, else at once, and the function that makes its completion.
pub(crate) type Later<'a, M> = (Option<&'a BatchGuard>, M);

/// The completion for a caller that does not go on.
pub(super) type NoCompletion = Later<'static, fn() -> fn(Result<Decision>) -> WakeTarget>;

/// Makes Decisions from answers. Checks that wait for the store keep this and not the limiter, because a dropped limiter closes.
pub(crate) struct Answers {
    pub(super) limiter: LimiterId,
    pub(crate) decisions: DecisionCounts,
    pub(super) wait_queues: WaitQueues,
    pub(super) overrides: Arc<KnownOverrides>,
    pub(super) learned_waits: LearnedWaits,
}

impl Answers {
    /// Counts an answer, wakes waiting callers if it matters to them, and makes a Decision from it. Units may have gone
    /// back even after an error. An attempt of `acquire` is not counted here, because it counts its last answer.
    #[inline(always)]
    fn decided(&self, plan: Arc<Plan>, key: &str, operation: &Operation, answer: Result<Answer>) -> Result<Decision> {
        if operation.wakes_waiters() {
            self.wait_queues.units_freed(&plan, key);
        }
        let mut answer = answer?;
        answer.see_unlimited(&plan);
        if let Some(learned) = answer.learned() {
            self.learned_waits.heard(key, answer.calendar_at(learned.wait_until));
        }
        if !matches!(operation, Operation::Acquire { .. } | Operation::Turn { .. }) {
            self.decisions.count(&plan, key, operation, &answer);
        }
        answer.keep_amounts(operation);
        Ok(Decision::new(self.limiter, plan, key, operation.named_cost(), answer))
    }
}

impl LimiterCore {
    /// Makes a call. There is no Decision if its caller does not wait for it.
    #[inline]
    pub(crate) fn call<T>(
        self: &Arc<Self>,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        call: &Call,
        waits: Waits<Later<'_, impl FnOnce() -> T>>,
    ) -> Option<Result<Decision>>
    where
        T: FnOnce(Result<Decision>) -> WakeTarget + Send + 'static,
    {
        match self.planned(policy, key, call) {
            Ok((plan, operation)) => self.run(plan, key, operation, waits),
            Err(error) => Some(Err(error)),
        }
    }

    /// The plan for a call, and its operation.
    #[inline]
    fn planned(&self, policy: &(impl AsPolicy + ?Sized), key: &str, call: &Call) -> Result<(Arc<Plan>, Operation)> {
        let plan = self.plan(policy, key)?;
        let operation = call.operation(&plan)?;
        Ok((plan, operation))
    }

    /// Makes a call with a known policy, for the numbers of its key.
    #[inline]
    pub(crate) fn run<T>(
        self: &Arc<Self>,
        plan: Arc<Plan>,
        key: &str,
        asking: impl Into<Asking>,
        waits: Waits<Later<'_, impl FnOnce() -> T>>,
    ) -> Option<Result<Decision>>
    where
        T: FnOnce(Result<Decision>) -> WakeTarget + Send + 'static,
    {
        let Asking { operation, mut asked, deadline } = asking.into();
        let (plan, operation) = match self.answers.overrides.in_force(&plan, key) {
            Ok(None) => (plan, operation),
            Ok(Some(own)) => {
                let made = asked.get_or_insert_with(|| Box::new(AskedOperation::new(plan, operation)));
                let operation = made.operation(&own);
                (own, operation)
            }
            Err(error) => return Some(Err(error)),
        };
        let entry = Entry { plan: &plan, key, operation };
        let context = CallContext { deadline, ..self.context() };
        let is_never = waits.is_never();
        let answer = match waits {
            Waits::Never => try_immediate(&*self.store, &entry, context)?,
            Waits::Here => ask(&*self.store, &entry, context),
            Waits::Later((batch, make)) => {
                // A dropped limiter closes. A call that gives units back keeps it until that is done, and a close waits for the call.
                let leaves = matches!(entry.operation, Operation::Leave { .. });
                let core = (leaves || entry.operation.frees()).then(|| (self.counted(), Arc::clone(self)));
                let answer = submit(&self.store, &entry, CallContext { batch, ..context }, || {
                    let answers = Arc::clone(&self.answers);
                    let (done, asked) = (make(), asked.take());
                    let now = context.now;
                    move |store: &Arc<dyn Store>, owned: OwnedEntry, answer: Result<Answer>| {
                        let decided = |answers: &Answers, OwnedEntry { plan, key, operation }, answer| {
                            done(answers.decided(plan, &key, &operation, answer))
                        };
                        match answer {
                            Ok(answer) if answer.changed_override().is_some() => {
                                let (counted, overrides) = (Arc::clone(&answers), Arc::clone(&answers.overrides));
                                overrides.repeat_later(
                                    store,
                                    (owned, asked),
                                    answer,
                                    (now, REPETITIONS),
                                    move |owned, answer| {
                                        let _core = core;
                                        decided(&counted, owned, answer)
                                    },
                                )
                            }
                            answer => {
                                let _core = core;
                                decided(&answers, owned, answer)
                            }
                        }
                    }
                })?;
                if let Some(batch) = batch {
                    batch.skip();
                }
                answer
            }
        };
        match answer {
            Ok(answer) if answer.changed_override().is_some() => {
                let (owned, answer) =
                    self.answers.overrides.repeated(&*self.store, (&entry, asked), answer, context.now, !is_never)?;
                Some(self.answers.decided(owned.plan, key, &owned.operation, answer))
            }
            answer => {
                let operation = entry.operation;
                Some(self.answers.decided(plan, key, &operation, answer))
            }
        }
    }

    /// Makes a call with a known policy, on this thread.
    pub(super) fn run_here(
        self: &Arc<Self>,
        plan: Arc<Plan>,
        key: &str,
        asking: impl Into<Asking>,
    ) -> Result<Decision> {
        self.run(plan, key, asking, Waits::<NoCompletion>::Here).unwrap_or_else(|| Err(gone()))
    }

    /// Makes a call for a user of one of the limiters.
    pub(crate) async fn call_of(
        self: &Arc<Self>,
        policy: &(impl AsPolicy + ?Sized),
        key: &str,
        call: &Call,
        waits: Waits,
    ) -> Result<Decision> {
        let (plan, operation) = self.planned(policy, key, call)?;
        match call.span_name() {
            // In a box, so that the future of a call without a span is small.
            Some(name) => {
                let decided = self.decision(plan, key, operation, waits);
                Box::pin(spanned(self, name, || self.policy_name(policy), waits, decided)).await
            }
            None => self.decision(plan, key, operation, waits).await,
        }
    }

    /// Makes a call with a known policy, for a user of one of the limiters.
    pub(super) async fn decision(
        self: &Arc<Self>,
        plan: Arc<Plan>,
        key: &str,
        asking: impl Into<Asking>,
        waits: Waits,
    ) -> Result<Decision> {
        if waits == Waits::Here {
            return self.run_here(plan, key, asking);
        }
        let mut answered = None;
        let make = || {
            let (answer, receiver) = oneshot::channel();
            answered = Some(receiver);
            move |decision| sent(answer, decision)
        };
        match (self.run(plan, key, asking, Waits::Later((None, make))), answered) {
            (Some(decision), _) => decision,
            (None, Some(answered)) => answered.await.unwrap_or_else(|_| Err(gone())),
            (None, None) => Err(gone()),
        }
    }

    /// The newest attempts, for a policy with a `journal`.
    pub(super) async fn journal(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        waits: Waits,
    ) -> Result<Vec<Attempt>> {
        let plan = self.plan(policy, key)?;
        if plan.policy.options().journal == 0 {
            return Ok(Vec::new());
        }
        Ok(self.decision(plan, key, Operation::Journal, waits).await?.into_answer().into_attempts())
    }

    pub(super) async fn ping(&self, waits: Waits) -> Result<()> {
        self.open()?;
        self.make_several("tidegate-ping", waits, |store| store.ping(None)).await
    }

    pub(super) async fn clear_all(&self, waits: Waits) -> Result<()> {
        self.open()?;
        self.make_several("tidegate-clear", waits, |store| store.clear_all()).await?;
        self.answers.overrides.forget_all();
        self.answers.wait_queues.wake_all();
        Ok(())
    }

    /// Makes several calls to a shared store, one after the other. For a task they run on another thread.
    pub(super) async fn make_several<T: Send + 'static>(
        &self,
        thread: &str,
        waits: Waits,
        run: impl FnOnce(&dyn Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if waits == Waits::Here || self.layers.is_none() {
            return run(&*self.store);
        }
        let (store, (answer, answered)) = (Arc::clone(&self.store), oneshot::channel());
        let started = std::thread::Builder::new().name(thread.to_owned()).spawn(move || sent(answer, run(&*store)));
        started.map_err(|error| Error::no_thread(&error))?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Limiter {
    /// Makes a call on this thread: see [`host`](crate::host).
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    #[doc(hidden)]
    pub fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        match call.span_name() {
            Some(name) => self.spanned(name, &policy, key, call),
            None => self.call_here(&policy, key, call),
        }
    }

    /// Makes a call on this thread, with a span if it has to wait.
    #[cold]
    pub(super) fn spanned(&self, name: SpanName, policy: &impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        let result = self.try_immediate(policy, key, call).unwrap_or_else(|| {
            let span = self.core.begin_span(name);
            let result = span.in_scope(|| self.call_here(policy, key, call));
            end(&span, &result, || self.core.policy_name(policy));
            result
        });
        tell_denial(&result);
        result
    }

    #[inline]
    fn call_here(&self, policy: &impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        self.core.call(policy, key, call, Waits::<NoCompletion>::Here).unwrap_or_else(|| Err(gone()))
    }

    /// Makes a call if its answer needs no waiting. Without an answer nothing was done. Then [`Limiter::call`] waits
    /// for it, and a host with a lock releases the lock meanwhile.
    #[doc(hidden)]
    #[inline]
    pub fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>> {
        match call {
            Call::Plain(cost) => self.core.check(&policy, key, *cost, Waits::Never),
            _ => self.core.call(&policy, key, call, Waits::<NoCompletion>::Never),
        }
    }
}

/// Sends an answer to the task that waits for it.
pub(super) fn sent<T>(answer: oneshot::Sender<T>, result: T) -> WakeTarget {
    // The receiver is gone if the call was cancelled.
    drop(answer.send(result));
    None
}

/// The result of a call that waits only for the store, on this thread.
pub(crate) fn on_this_thread<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(gone()),
    }
}

pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the limiter was closed before the store answered")
}
