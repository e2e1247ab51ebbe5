//! A value as a store keeps it: `mark, moment of expiry, denies until, length, value, appendix`.

use crate::algorithm::number;

/// Names a write. Each is random, so that no version of a key comes again.
pub(crate) type Mark = [u8; 8];

/// Bytes before the value.
const HEAD: usize = 8 + 8 + 8 + 4;

/// A value that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredValue<'a> {
    pub(super) mark: Mark,
    pub(super) expires_at: u64,
    pub(super) denies_until: u64,
    pub(super) value: &'a [u8],
    pub(super) appendix: &'a [u8],
}

impl<'a> StoredValue<'a> {
    /// `None` for bytes that Tidegate has not written.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (mark, mut rest) = bytes.split_first_chunk()?;
        let (expires_at, denies_until) = (number(&mut rest, 8)?, number(&mut rest, 8)?);
        let length = usize::try_from(number(&mut rest, 4)?).ok()?;
        let (value, appendix) = rest.split_at_checked(length)?;
        Some(Self { mark: *mark, expires_at, denies_until, value, appendix })
    }

    pub(super) const fn moments(&self) -> (u64, u64) {
        (self.expires_at, self.denies_until)
    }
}

/// The value in bytes that were read, as a server of Redis keeps it. `None` for bytes that Tidegate has not written.
#[cfg(feature = "postgres")]
pub(crate) fn value_of(bytes: &[u8]) -> Option<&[u8]> {
    StoredValue::read(bytes).map(|stored| stored.value)
}

/// Writes a value. `write` appends the value and its appendix, and returns when it expires and the bytes of the value.
pub(super) fn write_value(denies_until: u64, write: impl FnOnce(&mut Vec<u8>) -> (u64, usize)) -> (Vec<u8>, u64) {
    let mut bytes = vec![0; HEAD];
    let (expires_at, length) = write(&mut bytes);
    bytes[8..16].copy_from_slice(&expires_at.to_le_bytes());
    bytes[16..24].copy_from_slice(&denies_until.to_le_bytes());
    bytes[24..HEAD].copy_from_slice(&(length as u32).to_le_bytes());
    (bytes, expires_at)
}

/// Gives a written value its mark.
pub(super) fn set_mark(bytes: &mut [u8], mark: Mark) {
    bytes[..8].copy_from_slice(&mark);
}

/// True if it has neither a value nor an appendix, so that no value means the same.
pub(super) fn is_empty(bytes: &[u8]) -> bool {
    bytes.len() <= HEAD
}
