//! The header of stored values.

use crate::tables::allocation::allocated;

/// The first bytes of a value of some limits, in one form.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) bytes: Box<[u8]>,
    /// Its first bytes as a number, and a mask of their bits. Comparing numbers is faster than a call that compares bytes.
    first: u64,
    bits: u64,
}

impl Header {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let number = |byte: &dyn Fn(u8) -> u8| {
            bytes.iter().take(8).rev().fold(0, |number, next| number << 8 | u64::from(byte(*next)))
        };
        Self { first: number(&|byte| byte), bits: number(&|_| u8::MAX), bytes: bytes.into() }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }

    /// The rest of a value after this header. `None` if the value begins differently.
    #[inline]
    pub(crate) fn rest_of<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        if value.first_chunk().is_some_and(|first| u64::from_le_bytes(*first) & self.bits != self.first) {
            return None;
        }
        let (head, rest) = value.split_at_checked(self.bytes.len())?;
        (head.len() <= 8 && value.len() >= 8 || *head == *self.bytes).then_some(rest)
    }
}
