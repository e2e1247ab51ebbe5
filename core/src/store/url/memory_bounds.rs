//! How much a memory store may keep.

use super::byte_size;
use crate::error::{Error, Result};

/// The least that `max_bytes` may be.
const MIN_BYTES: usize = 100_000;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryBounds {
    /// Keys, without those that are being denied.
    pub(crate) max_keys: usize,
    /// Bytes, of all keys.
    pub(crate) max_bytes: usize,
}

impl Default for MemoryBounds {
    fn default() -> Self {
        Self { max_keys: 1_000_000, max_bytes: 1_000_000_000 }
    }
}

impl MemoryBounds {
    /// The bounds that the options of a URL give.
    ///
    /// # Errors
    /// `config_invalid` for what is no number of keys, or no amount of memory.
    pub(super) fn parse(max_keys: Option<&str>, max_bytes: Option<&str>) -> Result<Self> {
        let mut bounds = Self::default();
        if let Some(text) = max_keys {
            let keys = text.parse().ok().filter(|keys| (1..=u32::MAX as usize / 2).contains(keys));
            bounds.max_keys = keys.ok_or_else(|| {
                Error::config("max_keys is no number of keys: give a whole number from 1 to 2147483647")
            })?;
        }
        if let Some(text) = max_bytes {
            bounds.max_bytes = byte_size::parse("max_bytes", text, MIN_BYTES)?;
        }
        Ok(bounds)
    }
}
