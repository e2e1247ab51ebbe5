//! From an old store to a new one, a stable share of the keys at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::apart::Division;
use super::digest;
use crate::error::{Error, Result};
use crate::store::{Entry, Store};

/// Parts of the whole: shares down to a ten-thousandth of a percent.
const WHOLE: u32 = 1_000_000;

/// See the module.
pub(crate) struct Rollout {
    /// The old one, the new one.
    stores: Arc<[Arc<dyn Store>]>,
    /// Parts of the keys that are the new one's.
    share: AtomicU32,
    timeout: Duration,
}

/// # Errors
/// `config_invalid` for what is no percentage.
fn parts(percent: f64) -> Result<u32> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Error::config(format!("a rollout of {percent} percent is out of range: give from 0 to 100")));
    }
    Ok((percent * f64::from(WHOLE) / 100.0).round() as u32)
}

impl Rollout {
    /// `timeout` is what a call may take.
    ///
    /// # Errors
    /// `config_invalid` for what is no percentage.
    pub(crate) fn new(old: Arc<dyn Store>, new: Arc<dyn Store>, percent: f64, timeout: Duration) -> Result<Self> {
        Ok(Self { stores: Arc::new([old, new]), share: AtomicU32::new(parts(percent)?), timeout })
    }

    /// # Errors
    /// As [`Rollout::new`].
    pub(crate) fn set(&self, percent: f64) -> Result<()> {
        self.share.store(parts(percent)?, Ordering::Relaxed);
        Ok(())
    }
}

impl Division for Rollout {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]> {
        &self.stores
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    /// By the key alone, so that a caller moves with all its policies; by other bits than those that choose a shard.
    fn store_of(&self, entry: &Entry<'_>) -> usize {
        let place = digest::of(&[b"rollout", entry.key.as_bytes()]) % u64::from(WHOLE);
        usize::from(place < u64::from(self.share.load(Ordering::Relaxed)))
    }
}
