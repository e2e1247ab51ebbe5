//! A queue of answers that an event loop waits for. One wake-up brings all answers that arrived together.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::Result;
use crate::flow::Admission;
use crate::limiter::{AsPolicy, AsyncLimiter, Call, ChargedUnits, Cost, Hold, OverriddenKey, SettleCall, valid_actual};
use crate::process::waits::Waits;
use crate::store::batch_guard::BatchGuard;
use crate::store::completion::{Wake, WakeTarget};
use crate::store::request::Attempt;

/// A queue of answers. [`Wake::wake`] is called once after all answers that arrived together.
pub trait CompletionQueue: Wake {
    /// Takes the answer to the call with that ticket, on the thread that received it. The queue must only put it on a list.
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>);
}

/// The answer to a call.
#[derive(Debug)]
pub enum Outcome {
    /// Answers `check`, `peek`, `charge`, `refund`, `check_all` and `acquire`.
    Decision(Decision),
    /// Answers a `hold` for which there was room.
    Hold(Hold),
    /// Answers a request with its admission.
    Admission(Box<Admission>),
    /// Answers `journal`.
    Attempts(Vec<Attempt>),
    /// Answers `overrides`.
    Overrides(Vec<OverriddenKey>),
    /// Answers a refused job with its wait.
    Wait(Duration),
    /// Answers calls that return nothing.
    Nothing,
}

impl AsyncLimiter {
    /// Makes a call for a host. Returns a Decision that needs no waiting. Any other is delivered to the queue, once.
    /// With a batch the call is sent together with the other calls of that batch, else at once.
    #[doc(hidden)]
    pub fn post(
        &self,
        policy: impl AsPolicy,
        key: &str,
        call: &Call,
        ticket: u64,
        queue: &Arc<dyn CompletionQueue>,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Decision>> {
        // A memory store answers a plain check by the short path.
        if let Call::Plain(cost) = call
            && self.core.layers.is_none()
            && let Some(decision) = self.core.check(&policy, key, *cost, Waits::Never)
        {
            return Some(decision);
        }
        self.core.call(&policy, key, call, Waits::Later((batch, || delivery(ticket, queue))))
    }

    /// Settles a check in the same way.
    #[doc(hidden)]
    pub fn post_settle(
        &self,
        policy: impl AsPolicy,
        key: &str,
        charged: &ChargedUnits,
        actual: u64,
        ticket: u64,
        queue: &Arc<dyn CompletionQueue>,
    ) -> Option<Result<()>> {
        let plan = match valid_actual(actual).and_then(|()| self.core.plan(&policy, key)) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        // A policy that counts no units is settled by one call.
        let settled = self.core.settle_calls(&plan, key, (charged, &Cost::from(actual))).pop();
        let Some(SettleCall { plan, asking }) = settled else { return Some(Ok(())) };
        let waits = Waits::Later((None, || delivery(ticket, queue)));
        self.core.run(plan, key, asking, waits).map(|decision| decision.map(drop))
    }
}

/// Delivers a Decision to the queue.
fn delivery(
    ticket: u64,
    queue: &Arc<dyn CompletionQueue>,
) -> impl FnOnce(Result<Decision>) -> WakeTarget + Send + use<> {
    let queue = Arc::clone(queue);
    move |decision| {
        queue.deliver(ticket, decision.map(Outcome::Decision));
        Some(queue)
    }
}
