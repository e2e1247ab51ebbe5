//! The limiters that a builder describes.

use super::asynchronous::AsyncLimiter;
use super::blocking::Limiter;
use super::builder::Builder;
use crate::error::Result;

impl Builder {
    /// A limiter for threads.
    ///
    /// # Errors
    /// `config_invalid` for the store, the prefix or the timeout.
    pub fn build(self) -> Result<Limiter> {
        Ok(Limiter { core: self.core()? })
    }

    /// A limiter for tasks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_async(self) -> Result<AsyncLimiter> {
        Ok(AsyncLimiter { core: self.core()? })
    }
}
