//! The parts of a record, and their bits: see `shard.rs`.

/// The name of a record, which distinguishes its key from all others.
pub(super) type RecordName = [u64; 2];

/// The numbers of a block. The first block of a record has these before its bytes: its links, when it expires, until
/// when it denies its key, its lengths with its first bytes, and its name. Any other block has its link.
pub(super) const BLOCK: usize = 8;
pub(super) const NAME: usize = 4;
pub(super) const RECORD_HEAD: usize = NAME + 2;
pub(super) const BYTES_IN_FIRST: usize = FIRST_BYTES + (BLOCK - RECORD_HEAD) * 8;
pub(super) const BYTES_IN_OTHER: usize = (BLOCK - 1) * 8;

/// The bits of a moment. The bits above it have a part of the record's check.
pub(super) const MOMENT_BITS: u32 = 54;
pub(super) const MOMENT: u64 = (1 << MOMENT_BITS) - 1;
pub(super) const CHECK_BITS: u32 = 64 - MOMENT_BITS;
/// The bits of a length, and the bytes above both lengths. With them the value of any bucket fits into one block.
pub(super) const LENGTH_BITS: u32 = 24;
pub(super) const FIRST_BYTES: usize = 2;
pub(super) const LENGTH: u64 = (1 << LENGTH_BITS) - 1;
/// The most bytes of a record.
pub(super) const MAX_BYTES: usize = LENGTH as usize;

/// The stored data of a key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: RecordName,
    /// The value, and the bytes behind it.
    pub(super) bytes: Vec<u8>,
    pub(super) value_length: usize,
    pub(super) expires_at: u64,
    pub(super) denies_until: u64,
}

impl Record {
    /// The value, and the bytes behind it.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.value_length)
    }

    /// When it expires, and until when it denies its key.
    pub(super) const fn moments(&self) -> (u64, u64) {
        (self.expires_at, self.denies_until)
    }

    pub(super) fn blocks(&self) -> usize {
        blocks_of(self.bytes.len())
    }
}

pub(super) fn blocks_of(bytes: usize) -> usize {
    1 + bytes.saturating_sub(BYTES_IN_FIRST).div_ceil(BYTES_IN_OTHER)
}

/// The two lengths of a record, and its first bytes.
#[inline]
pub(super) fn lengths_of(record: &Record) -> u64 {
    let first = record.bytes.iter().take(FIRST_BYTES).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    record.bytes.len() as u64 | (record.value_length as u64) << LENGTH_BITS | first << (2 * LENGTH_BITS)
}

/// Up to eight bytes as one number.
#[inline]
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_ne_bytes(*whole);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(padded)
}

/// The file has numbers that Tidegate has not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// Reads a stored moment. The last possible one stands for never.
pub(super) fn moment(stored: u64) -> u64 {
    if stored & MOMENT == MOMENT { u64::MAX } else { stored & MOMENT }
}

/// The check that distinguishes a record from other bytes.
pub(super) struct Check(u64);

impl Check {
    #[inline(always)]
    pub(super) fn of(expires: u64, denies: u64, lengths: u64, name: RecordName) -> Self {
        let mut check = Self(0x6c62_272e_07bb_0142);
        [expires, denies, lengths, name[0], name[1]].into_iter().for_each(|number| check.add(number));
        check
    }

    #[inline(always)]
    pub(super) fn add(&mut self, number: u64) {
        // The product does not wait for that of the number before it.
        self.0 = self.0.rotate_left(23) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    pub(super) fn halves(&self) -> (u64, u64) {
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        (mixed >> (64 - CHECK_BITS), mixed >> (64 - 2 * CHECK_BITS) & ((1 << CHECK_BITS) - 1))
    }
}
