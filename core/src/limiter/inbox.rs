//! Calls whose answers are delivered to a list instead of a waiting thread or task: the way into an event loop that is
//! not Rust's. One wake-up brings all answers that came together.

use std::future::Future;
use std::sync::Arc;

use super::{AsPolicy, AsyncLimiter, Call, Hold, decided, difference};
use crate::decision::Decision;
use crate::error::Result;
use crate::resilience::Owned;
use crate::store::{Attempt, Entry, Operation, Source, Wake, WakeTarget, submit};
use crate::tasks::{self, Begun, Task};

/// Where answers are delivered. [`Wake::wake`] is called once after all that came together.
pub trait Inbox: Wake {
    /// An answer to the call with that ticket, on whatever thread has it. Must only put it on a list.
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>);
}

/// What came of a call.
#[derive(Debug)]
pub enum Outcome {
    /// Of `check`, `peek`, `charge`, `refund`, `check_all`, `acquire`.
    Decision(Decision),
    /// Of `hold`, when there was room.
    Hold(Hold),
    /// Of `journal`.
    Attempts(Vec<Attempt>),
    /// Of what only has to be done.
    Nothing,
}

/// What came of a task that was begun.
#[derive(Debug)]
pub enum Posted {
    /// It is done: nothing will be delivered.
    Done(Result<Outcome>),
    /// It waits for something.
    Waits(Task),
}

/// What a host that does not keep Decisions keeps of one, to settle it.
#[derive(Debug, Clone, Copy)]
pub struct Charged {
    /// The units it consumed.
    pub units: u64,
    /// Who answered.
    pub source: Source,
}

impl AsyncLimiter {
    /// Makes a call. An answer that needs no waiting is returned; any other is delivered to the inbox, once.
    pub fn post(
        &self,
        policy: impl AsPolicy,
        key: &str,
        call: &Call,
        ticket: u64,
        inbox: &Arc<dyn Inbox>,
    ) -> Option<Result<Decision>> {
        let (plan, operation) = match self.inner.plan(&policy, key).and_then(|plan| Ok((plan, call.operation()?))) {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        let refunds = matches!(operation, Operation::Refund { .. });
        let entry = Entry { plan: &plan, key, operation };
        let answer = submit(&self.inner.store, &entry, self.inner.now(), || {
            let (inner, inbox) = (refunds.then(|| Arc::clone(&self.inner)), Arc::clone(inbox));
            move |Owned { plan, key, operation }, answer: Result<_>| -> WakeTarget {
                if let Some(inner) = inner {
                    inner.lines.given_back(&plan, &key);
                }
                inbox.deliver(ticket, answer.map(|answer| Outcome::Decision(decided(plan, key, &operation, answer))));
                Some(inbox)
            }
        })?;
        if refunds {
            self.inner.lines.given_back(&plan, key);
        }
        let operation = entry.operation;
        Some(answer.map(|answer| decided(plan, key, &operation, answer)))
    }

    /// Settles a check: what is returned is done, anything else is delivered to the inbox, once.
    pub fn post_settle(
        &self,
        policy: impl AsPolicy,
        key: &str,
        charged: Charged,
        actual: u64,
        ticket: u64,
        inbox: &Arc<dyn Inbox>,
    ) -> Option<Result<()>> {
        let operation = match self.inner.open().and_then(|()| difference(charged.units, actual)) {
            Ok(Some(operation)) => operation,
            Ok(None) => return Some(Ok(())),
            Err(error) => return Some(Err(error)),
        };
        if charged.source == Source::Fallback {
            let plan = self.inner.plan(&policy, key);
            return Some(plan.map(|plan| self.inner.settles_here(&plan, key, &operation)));
        }
        let call = match operation {
            Operation::Charge { cost } => Call::Charge(cost),
            Operation::Refund { cost } => Call::Refund(cost),
            _ => return Some(Ok(())),
        };
        self.post(policy, key, &call, ticket, inbox).map(|answer| answer.map(drop))
    }

    /// Does anything else that this limiter can do: what comes of the future is delivered to the inbox, once, unless the
    /// task is cancelled before.
    ///
    /// # Errors
    /// `store_unavailable` when the thread for tasks cannot be started.
    pub fn post_task(
        ticket: u64,
        inbox: &Arc<dyn Inbox>,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Result<Task> {
        let inbox = Arc::clone(inbox);
        tasks::spawn(async move {
            inbox.deliver(ticket, task.await);
            inbox.wake();
        })
    }

    /// The same, begun on the calling thread: what comes of it at once is returned instead of delivered.
    ///
    /// # Errors
    /// As [`AsyncLimiter::post_task`].
    pub fn post_begun(
        ticket: u64,
        inbox: &Arc<dyn Inbox>,
        task: impl Future<Output = Result<Outcome>> + Send + 'static,
    ) -> Result<Posted> {
        Ok(match tasks::begin(task)? {
            Begun::Done(outcome) => Posted::Done(outcome),
            Begun::Waits(task) => Posted::Waits(Self::post_task(ticket, inbox, task)?),
        })
    }
}
