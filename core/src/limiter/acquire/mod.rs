//! How `acquire` waits: one queue per policy and key, so that callers are admitted in the order they came.

mod queue_estimate;
mod turn;
mod turns;
mod wait_deadline;
mod wait_queue;
mod wait_queues;

use std::sync::Arc;
use std::time::Duration;

use super::LimiterCore;
use super::caller::User;
use super::operations::{CheckOptions, attempt, whole_operation};
use super::policy_ref::AsPolicy;
use crate::algorithm::HoldId;
use crate::decision::Decision;
use crate::error::Result;
use crate::plan::Plan;
use crate::process::clock::Signal;
use crate::store::request::Operation;
use queue_estimate::QueueEstimate;
use turn::takes_turns;
use wait_deadline::WaitDeadline;
use wait_queue::QueuePosition;
use wait_queues::Joined;
pub(super) use wait_queues::{WaitBounds, WaitQueues};

/// What a caller in `acquire` does next.
enum AcquireStep {
    /// It asks the store, and gives the answer to [`Acquire::answered`].
    Ask(Operation),
    /// It sleeps until the signal has another count, at most that long.
    Sleep { signal: Arc<Signal>, count: u64, longest: Option<Duration> },
}

/// What a caller does meanwhile.
enum CallerState {
    Queued(QueuePosition),
    /// It is told how long the others take.
    GivesUp(QueueEstimate),
}

/// A caller in `acquire`.
struct Acquire<'a> {
    core: &'a LimiterCore,
    plan: &'a Arc<Plan>,
    key: &'a str,
    operation: &'a Operation,
    deadline: WaitDeadline<'a>,
    state: CallerState,
    /// Its number in the line over all processes; 0 before the first refusal.
    waiter: HoldId,
    /// The count of the signal before the store was asked, and the sleep after its refusal.
    count: u64,
    pause: Option<Duration>,
}

impl<'a> Acquire<'a> {
    /// Enters the queue, or gives up at once where it is full.
    fn begin(
        core: &'a LimiterCore,
        plan: &'a Arc<Plan>,
        key: &'a str,
        operation: &'a Operation,
        deadline: WaitDeadline<'a>,
    ) -> Result<Self> {
        let cost = operation.cost();
        let state = match core.answers.wait_queues.join(plan, key, cost)? {
            Joined::Position(position) => {
                deadline.listen(position.signal());
                CallerState::Queued(position)
            }
            Joined::Full(ahead) => CallerState::GivesUp(QueueEstimate::new(operation, ahead)),
        };
        Ok(Self { core, plan, key, operation, deadline, state, waiter: 0, count: 0, pause: None })
    }

    /// # Errors
    /// `closed`.
    fn step(&mut self) -> Result<AcquireStep> {
        let position = match &self.state {
            CallerState::Queued(position) => position,
            CallerState::GivesUp(estimate) => return Ok(AcquireStep::Ask(estimate.operation(self.plan))),
        };
        let signal = Arc::clone(position.signal());
        if let Some(pause) = self.pause.take() {
            return Ok(AcquireStep::Sleep { signal, count: self.count, longest: self.deadline.sleep(Some(pause)) });
        }
        self.core.open()?;
        self.count = signal.count();
        match position.units_ahead() {
            None => Ok(AcquireStep::Ask(attempt(self.operation, self.waiter))),
            Some(ahead) if self.deadline.is_over() => {
                let estimate = QueueEstimate::new(self.operation, ahead);
                let asked = estimate.operation(self.plan);
                self.state = CallerState::GivesUp(estimate);
                Ok(AcquireStep::Ask(asked))
            }
            Some(_) => Ok(AcquireStep::Sleep { signal, count: self.count, longest: self.deadline.sleep(None) }),
        }
    }

    /// The Decision, unless it sleeps and asks again.
    fn answered(&mut self, decision: Decision) -> Option<Decision> {
        let decision = match &self.state {
            CallerState::GivesUp(estimate) => {
                let plan = Arc::clone(decision.plan());
                estimate.denied(self.core.id, plan, self.key, decision.into_answer())
            }
            CallerState::Queued(_) => {
                self.waiter = if self.waiter == 0 { self.core.hold_id() } else { self.waiter };
                self.pause = self.deadline.pause(&decision);
                if self.pause.is_some() {
                    return None;
                }
                decision
            }
        };
        self.core.answers.decisions.count_check(decision.plan(), decision.key(), decision.answer());
        Some(decision)
    }
}

impl LimiterCore {
    /// Waits until the call is admitted.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        options: &CheckOptions,
        timeout: Option<Duration>,
        user: User,
    ) -> Result<Decision> {
        let plan = self.plan(policy, key)?;
        let operation = whole_operation("acquire", options, &plan, 0)?;
        let deadline = WaitDeadline::new(self, timeout);
        if takes_turns(&plan, &operation)
            && let Some(decision) = self.acquire_turn(&plan, key, &operation, &deadline, user).await?
        {
            self.answers.decisions.count_check(decision.plan(), decision.key(), decision.answer());
            return Ok(decision);
        }
        let mut acquire = Acquire::begin(self, &plan, key, &operation, deadline)?;
        loop {
            match (acquire.step()?, user) {
                (AcquireStep::Ask(operation), _) => {
                    let decision = self.decision(Arc::clone(&plan), key, operation, user).await?;
                    if let Some(decision) = acquire.answered(decision) {
                        return Ok(decision);
                    }
                }
                (AcquireStep::Sleep { signal, count, longest }, User::Thread) => signal.wait(count, longest),
                (AcquireStep::Sleep { signal, count, longest }, User::Task) => signal.wait_async(count, longest).await,
            }
        }
    }
}
