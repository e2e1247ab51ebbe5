//! The numbers at the beginning of a file, and where its shards are.

use super::locked_shard::LockedShard;
use super::machine_clock;
use super::record::{BLOCK, RecordName};
use super::shard::{FileShard, LOCK, SHARD_HEAD};
use super::system_clock;
use super::words::Words;

/// `TIDEGATE`, and the version of what follows.
const MAGIC: u64 = u64::from_be_bytes(*b"TIDEGATE");
const LAYOUT: u64 = 1;

/// The bytes before the shards.
const HEADER_BYTES: usize = 4096;
/// The bytes of the smallest file.
pub(super) const MIN_FILE: usize = 128 << 10;
const MIN_SHARD: usize = 1 << 20;
const MAX_SHARDS: usize = 64;

const FIELDS: usize = 8;
/// The start of the machine at which the file was last used, and the offset of its time.
const BOOT: usize = 8;
const OFFSET: usize = 9;
/// Which part is being made whole, from 1 on, by a process that has the lock of the file; else 0.
pub(super) const REPAIRED: usize = 32;

/// Why a file cannot be used. Its text follows the name of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    Foreign,
    OtherLayout(u64),
    Damaged,
    OtherTime,
}

/// What a file is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) bytes: usize,
    pub(super) shards: usize,
    buckets: usize,
    blocks: usize,
    /// What the names of records depend on, beside their keys.
    pub(super) seed: u64,
}

impl Geometry {
    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        let shards = (bytes / MIN_SHARD).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let words = (bytes - HEADER_BYTES) / 8 / shards / BLOCK * BLOCK - SHARD_HEAD;
        // A bucket for every two blocks: more of them would be spread over more pages.
        let buckets = words / (2 * BLOCK + 1) / BLOCK * BLOCK;
        Self { bytes, shards, buckets, blocks: (words - buckets) / BLOCK, seed }
    }

    fn shard_words(&self) -> usize {
        SHARD_HEAD + self.buckets + self.blocks * BLOCK
    }

    fn fields(&self) -> [u64; FIELDS] {
        let Self { bytes, shards, buckets, blocks, seed } = *self;
        let numbers = [bytes, shards, buckets, blocks].map(|number| number as u64);
        let check = blake3::hash(format!("{:?}", (numbers, seed)).as_bytes());
        let check = check.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        [MAGIC, LAYOUT, numbers[0], numbers[1], numbers[2], numbers[3], seed, check]
    }

    /// Writes the header of a new file.
    pub(super) fn write(&self, words: &Words) {
        self.fields().iter().enumerate().for_each(|(at, number)| words.store(at, *number));
        self.begin(words);
    }

    fn begin(&self, words: &Words) {
        machine_clock::rebase(words);
        words.store(OFFSET, system_clock::time_offset());
        words.release(BOOT, system_clock::boot_id());
    }

    /// Reads the header of a file of that many bytes. What an earlier start of the machine has left is made whole: returns how many
    /// records were damaged then.
    pub(super) fn read(words: &Words, bytes: usize) -> Result<(Self, usize), Unusable> {
        if words.load(0) != MAGIC {
            return Err(Unusable::Foreign);
        }
        if words.load(1) != LAYOUT {
            return Err(Unusable::OtherLayout(words.load(1)));
        }
        let geometry = Self::new(bytes.max(MIN_FILE), words.load(6));
        if geometry.fields() != [0, 1, 2, 3, 4, 5, 6, 7].map(|at| words.load(at)) {
            return Err(Unusable::Damaged);
        }
        let boot = system_clock::boot_id();
        // The id of a start decides, where the system has one: no time that this process reads says it better.
        if words.load(BOOT) == boot && (boot != 0 || !machine_clock::was_restarted(words)) {
            let is_same = words.load(OFFSET) == system_clock::time_offset();
            return if is_same { Ok((geometry, 0)) } else { Err(Unusable::OtherTime) };
        }
        let damaged = (0..geometry.shards).map(|number| {
            words.store(REPAIRED, number as u64 + 1);
            let shard = geometry.shard(words, number);
            words.store(shard.at + LOCK, 0);
            LockedShard(shard).repair()
        });
        let damaged = damaged.sum();
        words.store(REPAIRED, 0);
        geometry.begin(words);
        Ok((geometry, damaged))
    }

    pub(super) fn shard<'a>(&self, words: &'a Words, number: usize) -> FileShard<'a> {
        let at = HEADER_BYTES / 8 + number * self.shard_words();
        FileShard { words, at, buckets: self.buckets, blocks: self.blocks }
    }

    /// The shard and the bucket of a record.
    #[inline]
    pub(super) fn place(&self, name: RecordName) -> (usize, usize) {
        let bucket = (u128::from(name[1]) * self.buckets as u128) >> 64;
        (name[0] as usize & (self.shards - 1), bucket as usize)
    }
}
