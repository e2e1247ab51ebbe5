//! What stands in a record, and in which bits: see `shard.rs`.

use smallvec::SmallVec;

/// Numbers of a block, of which the first one of a record has these before its bytes: its links, when it expires, until when it
/// denies its key, its lengths. Any other has its link.
pub(super) const BLOCK: usize = 8;
pub(super) const RECORD_HEAD: usize = 4;
pub(super) const BYTES_IN_FIRST: usize = (BLOCK - RECORD_HEAD) * 8;
pub(super) const BYTES_IN_OTHER: usize = (BLOCK - 1) * 8;

/// The bits of a moment; those above have a part of the check of the record.
pub(super) const MOMENT_BITS: u32 = 54;
pub(super) const MOMENT: u64 = (1 << MOMENT_BITS) - 1;
pub(super) const CHECK_BITS: u32 = 64 - MOMENT_BITS;
/// The bits of a length of bytes.
pub(super) const LENGTH_BITS: u32 = 28;
pub(super) const LENGTH: u64 = (1 << LENGTH_BITS) - 1;
/// The longest key and the most bytes of a record.
pub(super) const MAX_KEY: usize = 255;
pub(super) const MAX_BYTES: usize = LENGTH as usize;

/// What is stored of a key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The key, the value, and what stands behind it.
    pub(super) bytes: Vec<u8>,
    pub(super) key_length: usize,
    pub(super) value_length: usize,
    pub(super) expires_at: u64,
    pub(super) denies_until: u64,
}

impl Record {
    /// The value, and what stands behind it.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes[self.key_length..].split_at(self.value_length)
    }

    pub(super) fn blocks(&self) -> usize {
        blocks_of(self.bytes.len())
    }
}

pub(super) fn blocks_of(bytes: usize) -> usize {
    1 + bytes.saturating_sub(BYTES_IN_FIRST).div_ceil(BYTES_IN_OTHER)
}

/// A key as it stands at the beginning of a record: whole numbers, and those bits of the last one that it has.
pub(super) struct KeyWords {
    numbers: SmallVec<[u64; 4]>,
    last: u64,
    pub(super) length: usize,
}

impl KeyWords {
    #[inline]
    pub(super) fn of(key: &[u8]) -> Self {
        let last = u64::MAX >> (8 * (7 - (key.len() + 7) % 8));
        // The first bytes are the lower ones, or the upper ones, as this machine has it.
        let last = if cfg!(target_endian = "little") { last } else { last.swap_bytes() };
        Self { numbers: key.chunks(8).map(number_of).collect(), last, length: key.len() }
    }

    /// How many numbers it is.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    #[inline]
    pub(super) fn is_at(&self, index: usize, number: u64) -> bool {
        let mask = if index + 1 == self.numbers.len() { self.last } else { u64::MAX };
        number & mask == self.numbers[index]
    }
}

/// Up to eight bytes as they stand in a number.
#[inline]
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_ne_bytes(*whole);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(padded)
}

/// The file has numbers that no process of ours writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// A moment as it is stored: the last one that there is stands for never.
pub(super) fn moment(stored: u64) -> u64 {
    if stored & MOMENT == MOMENT { u64::MAX } else { stored & MOMENT }
}

/// What tells a record from other bytes.
pub(super) struct Check(u64);

impl Check {
    pub(super) fn of(expires: u64, denies: u64, lengths: u64) -> Self {
        let mut check = Self(0x6c62_272e_07bb_0142);
        [expires, denies, lengths].into_iter().for_each(|number| check.add(number));
        check
    }

    #[inline(always)]
    pub(super) fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(super) fn halves(&self) -> (u64, u64) {
        let mixed = self.0 ^ self.0 >> 32;
        (mixed >> (64 - CHECK_BITS), mixed >> (64 - 2 * CHECK_BITS) & ((1 << CHECK_BITS) - 1))
    }
}
