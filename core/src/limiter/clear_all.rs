//! `clear_all`: a limiter as if it had never been used.

use super::answer_channel::awaited;
use super::asynchronous::AsyncLimiter;
use super::blocking::Limiter;
use crate::error::Result;

impl Limiter {
    /// Forgets the usage of all policies and keys, all blocks and all journals: everything that is stored under the prefix of
    /// this limiter. On Redis each primary is walked through in small steps, so the call takes as long as there are keys; each
    /// step has the timeout of a call. Other processes may repeat a denial for as long as their deny cache does.
    ///
    /// # Errors
    /// `closed`, and the errors of the store: then some keys may be left.
    pub fn clear_all(&self) -> Result<()> {
        self.core.open()?;
        self.core.store.clear_all()?;
        self.core.answers.wait_queues.wake_all();
        Ok(())
    }
}

impl AsyncLimiter {
    /// Forgets everything that is stored under the prefix: see [`Limiter::clear_all`].
    ///
    /// # Errors
    /// As [`Limiter::clear_all`].
    ///
    /// # Cancel safety
    /// It goes on once it was polled, also when the future is dropped.
    pub async fn clear_all(&self) -> Result<()> {
        self.core.open()?;
        awaited(|done| self.core.store.submit_clear_all(done)).await?;
        self.core.answers.wait_queues.wake_all();
        Ok(())
    }
}
