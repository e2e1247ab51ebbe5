//! What a call brings with it besides its entry.

use std::time::Instant;

use super::batch_guard::BatchGuard;

/// The time, the deadline and the batch of a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallContext<'a> {
    /// The time to decide by, in microseconds since 1970; without it the store uses its own clock.
    pub(crate) now: Option<u64>,
    /// When the call gives up; without it the call has the timeout of the store. Given where one call is made of several,
    /// which share its time. A store that answers at once does not read it.
    pub(crate) deadline: Option<Instant>,
    /// The batch that a call without waiting is sent with; without it the call is sent at once.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build sends batches"))]
    pub(crate) batch: Option<&'a BatchGuard>,
}

impl CallContext<'_> {
    /// A call that is decided at that time, and nothing else.
    #[inline]
    pub(crate) const fn at(now: Option<u64>) -> Self {
        Self { now, deadline: None, batch: None }
    }

    /// A call that is decided at that time and gives up at the deadline.
    pub(crate) const fn until(now: Option<u64>, deadline: Instant) -> Self {
        Self { now, deadline: Some(deadline), batch: None }
    }
}
