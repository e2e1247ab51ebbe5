//! The users of a limiter, and their ways to wait for a Decision.

use crate::decision::Decision;
use crate::error::Result;
use crate::store::batch_guard::BatchGuard;
use crate::store::completion::WakeTarget;

/// How the caller of a call waits for its Decision.
pub(crate) enum DecisionWait<'a, M = NoCompletion> {
    /// It does not wait. If the answer is not known at once, nothing is done.
    Never,
    /// It waits on its thread.
    Here,
    /// It goes on. A Decision that needs no waiting is returned. For any other, `make` makes the function that gets it.
    /// With a batch the call is sent together with the other calls of that batch, else at once.
    Later { batch: Option<&'a BatchGuard>, make: M },
}

/// The completion for a caller that does not go on.
pub(crate) type NoCompletion = fn() -> fn(Result<Decision>) -> WakeTarget;

/// The user of a limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// It waits.
    Thread,
    Task,
}
