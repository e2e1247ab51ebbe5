//! Who makes a call, and how its Decision is waited for.

use crate::decision::Decision;
use crate::error::Result;
use crate::store::batch_guard::BatchGuard;
use crate::store::completion::WakeTarget;

/// How the caller of a call waits for its Decision.
pub(crate) enum DecisionWait<'a, M = NoCompletion> {
    /// Not at all: where the answer is not known at once, nothing is done.
    Never,
    /// On its thread.
    Here,
    /// It goes on. A Decision that needs no waiting is returned; for any other `make` makes what is called with it. With a batch
    /// the call is sent together with the other calls of that batch, else at once.
    Later { batch: Option<&'a BatchGuard>, make: M },
}

/// The completion of a caller that does not go on.
pub(crate) type NoCompletion = fn() -> fn(Result<Decision>) -> WakeTarget;

/// Who calls a limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// It waits.
    Thread,
    Task,
}
