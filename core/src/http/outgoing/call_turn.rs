//! The turn of a request: its charge, and its hold until the body of its response has ended.

use std::future::Future;

use crate::decision::Decision;
use crate::flow::give_back;
use crate::http::settling::{in_background, settle_to};
use crate::limiter::{AsyncLimiter, Cost, Hold};
use crate::process::waits::Waits;

/// Finds the actual cost of a call in the body of its response, while the caller reads the body.
pub trait SettleReader: Send {
    /// Takes a chunk of the body.
    fn feed(&mut self, chunk: &[u8]);

    /// Returns the actual cost when the body has ended or was given up. `None` leaves the charge as it is.
    fn end(self: Box<Self>) -> Option<Cost>;
}

/// The actual cost of a call, as far as the head of its response tells.
pub(crate) enum CallCost {
    Charged,
    Known(Cost),
    Read(Box<dyn SettleReader>),
}

/// A turn that came. Its charge goes back if it is dropped before the request is sent.
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

    /// Notes that the request may arrive from now on.
    pub(super) const fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Gives the whole charge back, because nothing has arrived.
    pub(super) async fn give_back(mut self) {
        self.is_sent = true;
        self.hold = None;
        give_back(&self.limiter.core, &self.decision, Waits::TASK).await;
    }

    /// The work that is left for the end of the body. `None` if there is none.
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
            in_background(async move { give_back(&limiter.core, &decision, Waits::TASK).await });
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

    /// Gives the hold back, and settles.
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
