//! Calls on the thread of the caller.

use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::{AsPolicy, Call, Caller, CheckOptions, Limiter, NoCompletion, valid_cost};
use crate::store::call_context::Waits;

/// What hosts call of a [`Limiter`].
pub trait HostLimiter {
    /// Makes a call on this thread.
    ///
    /// # Errors
    /// As [`Limiter::check_with`].
    fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision>;

    /// Makes a call whose answer needs no waiting. Nothing was done when there is no answer: then [`HostLimiter::call`]
    /// waits for it, and a host with a lock of its own releases that meanwhile.
    fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>>;

    /// Whether calls may have to wait for a server.
    #[must_use]
    fn waits(&self) -> bool;

    /// As its `waiting`, and what is wrong with a policy or a key is an error.
    ///
    /// # Errors
    /// `policy_unknown`, `policy_invalid`, `key_invalid` and `closed`, as of any call.
    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize>;
}

impl HostLimiter for Limiter {
    fn call(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Result<Decision> {
        Self::call(self, &policy, key, call)
    }

    #[inline]
    fn try_immediate(&self, policy: impl AsPolicy, key: &str, call: &Call) -> Option<Result<Decision>> {
        match call {
            Call::Check(CheckOptions { cost, meta: None, partial: false }) => match valid_cost(*cost) {
                Ok(cost) => self.core.check(&policy, key, cost, Waits::Never),
                Err(error) => Some(Err(error)),
            },
            _ => self.core.call(&policy, key, call, Caller::<NoCompletion>::Never),
        }
    }

    fn waits(&self) -> bool {
        self.core.layers.is_some()
    }

    fn try_waiting(&self, policy: impl AsPolicy, key: &str) -> Result<usize> {
        self.core.waiting(&policy, key)
    }
}
