//! The context of a call, beside its entry.

use std::time::Instant;

use super::batch_guard::BatchGuard;
use super::completion::Completion;
use super::layer_states::LayerStates;
use super::request::Answer;
pub(crate) use crate::process::waits::Waits;

/// Makes the completion of a call, from the states of the layers.
pub(crate) type MakeCompletion<'a, T> = &'a dyn Fn(LayerStates) -> Completion<T>;

/// The time, the deadline and the batch of a call, and how its caller waits.
pub(crate) struct CallContext<'a, T = Answer> {
    /// The time to decide by, in microseconds since 1970. Without it the store uses its own clock.
    pub(crate) now: Option<u64>,
    /// When the call gives up. Without it the call has the timeout of the store. It is given if one call is made of
    /// several, which share its time. A store that answers at once does not read it.
    pub(crate) deadline: Option<Instant>,
    /// The batch that a call without waiting is sent with. Without it the call is sent at once.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build sends batches"))]
    pub(crate) batch: Option<&'a BatchGuard>,
    pub(crate) waits: Waits<MakeCompletion<'a, T>>,
}

impl<T> Clone for CallContext<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CallContext<'_, T> {}

impl<'a, T> CallContext<'a, T> {
    /// A call that is decided at that time and that its caller waits for.
    #[inline]
    pub(crate) const fn at(now: Option<u64>) -> Self {
        Self { now, deadline: None, batch: None, waits: Waits::Here }
    }

    /// A call that is decided at that time and gives up at the deadline.
    pub(crate) const fn until(now: Option<u64>, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..Self::at(now) }
    }

    /// The same call, for a caller that waits in that way.
    #[inline]
    pub(crate) fn waiting(self, waits: Waits<MakeCompletion<'a, T>>) -> Self {
        Self { waits, ..self }
    }
}
