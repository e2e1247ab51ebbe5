//! The turn of a request: what was charged for it, and what is held until the body of its response has ended.

use std::future::Future;

use crate::decision::Decision;
use crate::flow::give_back;
use crate::http::settling::{in_background, settle_to};
use crate::limiter::{AsyncLimiter, Cost, Hold, User};

/// Reads from a body what a call has cost, while the caller reads it.
pub trait SettleReader: Send {
    /// A chunk of the body.
    fn feed(&mut self, chunk: &[u8]);

    /// The body has ended, or was given up: what the call has cost, or `None` for what was charged.
    fn end(self: Box<Self>) -> Option<Cost>;
}

/// What a call has cost, once its head is known.
pub(crate) enum CallCost {
    Charged,
    Known(Cost),
    Read(Box<dyn SettleReader>),
}

/// A turn that came. One that was not used gives back what it was charged.
pub(super) struct CallTurn {
    limiter: AsyncLimiter,
    decision: Decision,
    hold: Option<Hold>,
    is_sent: bool,
}

impl CallTurn {
    pub(super) const fn new(limiter: AsyncLimiter, decision: Decision, hold: Option<Hold>) -> Self {
        Self { limiter, decision, hold, is_sent: false }
    }

    pub(super) const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// From here on the request may arrive.
    pub(super) const fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Nothing has arrived: all that was charged goes back.
    pub(super) async fn give_back(mut self) {
        self.is_sent = true;
        self.hold = None;
        give_back(&self.limiter.core, &self.decision, User::Task).await;
    }

    /// What is left to be done at the end of the body; `None` for nothing.
    pub(super) fn end_with(mut self, cost: CallCost) -> Option<CallEnd> {
        let hold = self.hold.take();
        if hold.is_none() && matches!(cost, CallCost::Charged) {
            return None;
        }
        Some(CallEnd(Some(Box::new(OpenCall {
            limiter: self.limiter.clone(),
            decision: self.decision.clone(),
            hold,
            cost,
        }))))
    }
}

impl Drop for CallTurn {
    fn drop(&mut self) {
        if !self.is_sent {
            let (limiter, decision) = (self.limiter.clone(), self.decision.clone());
            in_background(async move { give_back(&limiter.core, &decision, User::Task).await });
        }
    }
}

/// The end of a call whose body is on its way to the caller. Dropping it ends the call.
pub(crate) struct CallEnd(Option<Box<OpenCall>>);

struct OpenCall {
    limiter: AsyncLimiter,
    decision: Decision,
    hold: Option<Hold>,
    cost: CallCost,
}

impl CallEnd {
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        if let Some(CallCost::Read(reader)) = self.0.as_mut().map(|open| &mut open.cost) {
            reader.feed(chunk);
        }
    }

    /// Gives back what is held, and settles.
    pub(super) fn finish(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        self.0.take().and_then(|open| open.finish())
    }
}

impl OpenCall {
    fn finish(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self { limiter, decision, hold, cost } = self;
        drop(hold);
        let actual = match cost {
            CallCost::Charged => None,
            CallCost::Known(cost) => Some(cost),
            CallCost::Read(reader) => reader.end(),
        }?;
        Some(async move { settle_to(&limiter, &decision, &actual).await })
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        if let Some(settled) = self.0.take().and_then(|open| open.finish()) {
            in_background(settled);
        }
    }
}
