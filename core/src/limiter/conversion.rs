//! From the limiter for threads to the one for tasks, and back.

use std::sync::Arc;

use super::asynchronous::AsyncLimiter;
use super::blocking::Limiter;

impl Limiter {
    /// This limiter for tasks: both share policies, usage and connections.
    #[must_use]
    pub fn to_async(&self) -> AsyncLimiter {
        AsyncLimiter { core: Arc::clone(&self.core) }
    }

    /// A short description without secrets: its stores, and how many policies it has.
    #[must_use]
    pub fn described(&self) -> String {
        let closed = if self.core.open().is_ok() { "" } else { ", closed" };
        format!("of {}, policies: {}{closed}", self.core.shown, self.core.policies.count())
    }
}

impl AsyncLimiter {
    /// This limiter for threads: both share policies, usage and connections.
    #[must_use]
    pub fn to_blocking(&self) -> Limiter {
        Limiter { core: Arc::clone(&self.core) }
    }
}
