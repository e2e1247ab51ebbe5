//! How much a memory store may keep.

use super::byte_size;
use super::query::found_options;
use crate::error::{Error, Result};

/// The least value of `max_bytes`.
const MIN_BYTES: usize = 100_000;

/// The most keys and bytes of a memory store.
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
    /// The bounds that a URL of `memory://` gives.
    ///
    /// # Errors
    /// `config_invalid` for a bad number of keys, a bad amount of memory or an unknown option.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = found_options("memory", query, &["max_keys", "max_bytes"])?.into_iter();
        let (max_keys, max_bytes) = (options.next().flatten(), options.next().flatten());
        let mut bounds = Self::default();
        if let Some(text) = max_keys {
            bounds.max_keys = max_keys_of(&text)?;
        }
        if let Some(text) = max_bytes {
            bounds.max_bytes = byte_size::parse("max_bytes", &text, MIN_BYTES)?;
        }
        if !matches!(place, "memory://" | "memory:///") {
            return Err(Error::config(
                "memory:// takes nothing but options, as in memory://?max_keys=1000000&max_bytes=1GB",
            ));
        }
        Ok(bounds)
    }
}

/// Reads a number of keys.
///
/// # Errors
/// `config_invalid` for any other text.
pub(super) fn max_keys_of(text: &str) -> Result<usize> {
    let keys = text.parse().ok().filter(|keys| (1..=u32::MAX as usize / 2).contains(keys));
    keys.ok_or_else(|| Error::config("max_keys is not a number of keys: give a whole number from 1 to 2147483647"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_the_bounds() {
        for (url, max_keys, max_bytes) in [
            ("memory://", 1_000_000, 1_000_000_000),
            ("memory:///", 1_000_000, 1_000_000_000),
            ("memory://?max_keys=7", 7, 1_000_000_000),
            ("memory:///?max_bytes=64%4DB&max_keys=8", 8, 64_000_000),
        ] {
            assert_eq!(MemoryBounds::parse(url).expect(url), MemoryBounds { max_keys, max_bytes }, "{url}");
        }
    }

    #[test]
    fn all_else_is_refused() {
        for (url, why) in [
            ("memory://host", "takes nothing but options"),
            ("memory://:pw@", "takes nothing but options"),
            ("memory:///path?max_keys=7", "takes nothing but options"),
            ("memory://?max_keys=0", "not a number of keys"),
            ("memory://?max_keys=1&max_keys=2", "\"max_keys\" twice"),
            ("memory://?keys=1", "memory:// has no such option: it has max_keys, max_bytes"),
        ] {
            let error = MemoryBounds::parse(url).expect_err(url);
            assert_eq!(error.code(), "config_invalid", "{url}");
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
    }
}
