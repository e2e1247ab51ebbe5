//! Calls whose answers are delivered to a completion queue instead of a waiting thread or task.

use std::sync::Arc;

use super::{BatchGuard, CompletionQueue, Outcome, ReplyPoller};
use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::{AsPolicy, AsyncLimiter, Call, Caller, ChargedUnits, difference, valid_actual};
use crate::store::completion::WakeTarget;
use crate::store::request::Source;

/// What hosts call of an [`AsyncLimiter`].
pub trait HostAsyncLimiter {
    /// Makes a call. An answer that needs no waiting is returned; any other is delivered to the queue, once. With a batch
    /// the call is sent together with the other calls of that batch, else at once.
    fn post(
        &self,
        policy: impl AsPolicy,
        key: &str,
        call: &Call,
        ticket: u64,
        queue: &Arc<dyn CompletionQueue>,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Decision>>;

    /// Settles a check in the same way.
    fn post_settle(
        &self,
        policy: impl AsPolicy,
        key: &str,
        charged: &ChargedUnits,
        actual: u64,
        ticket: u64,
        queue: &Arc<dyn CompletionQueue>,
    ) -> Option<Result<()>>;

    /// A number that limiters of the same store and prefix share.
    #[must_use]
    fn identity(&self) -> u64;

    /// For an event loop that can watch a file: from now on it reads the replies of the limiter's servers. `None` when
    /// there are no servers, when another loop reads already, or when the system is not Linux.
    #[must_use]
    fn reply_poller(&self) -> Option<ReplyPoller>;

    /// From now on threads of the limiter read the replies, even if an event loop did.
    fn read_on_threads(&self);

    /// As its `waiting`, and what is wrong with a policy or a key is an error.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid` and `closed`, as of any call.
    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize>;
}

impl HostAsyncLimiter for AsyncLimiter {
    fn post(
        &self,
        policy: impl AsPolicy,
        key: &str,
        call: &Call,
        ticket: u64,
        queue: &Arc<dyn CompletionQueue>,
        batch: Option<&BatchGuard>,
    ) -> Option<Result<Decision>> {
        let make = || delivery(ticket, queue);
        self.core.call(&policy, key, call, Caller::Later { batch, make })
    }

    fn post_settle(
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
        let charge = || Arc::new(charged.charge(&plan));
        let Some(operation) = difference(charged.units, actual, charge) else { return Some(Ok(())) };
        if charged.source == Source::Fallback {
            self.core.settle_in_fallback(&plan, key, operation);
            return Some(Ok(()));
        }
        let make = || delivery(ticket, queue);
        let caller = Caller::Later { batch: None, make };
        self.core.run(plan, key, operation, caller).map(|decision| decision.map(drop))
    }

    fn identity(&self) -> u64 {
        self.core.id.digest()
    }

    fn reply_poller(&self) -> Option<ReplyPoller> {
        self.core.layers.as_ref()?;
        ReplyPoller::begin(&self.core.readers)
    }

    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize> {
        self.core.waiting(&policy, key)
    }

    fn read_on_threads(&self) {
        if let Some(readers) = self.core.readers.get() {
            readers.close();
        }
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
