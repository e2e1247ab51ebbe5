//! The numbers at the beginning of a file, and where its shards are.

use super::locked_shard::LockedShard;
use super::machine_clock;
use super::record::{BLOCK, RecordName};
use super::repair::Losses;
use super::seal::digest;
use super::shard::{FileShard, LOCK, MAX_BLOCKS, SHARD_HEAD};
use super::sync::{Ordering, fence};
use super::system_clock;
use super::words::Words;

/// `TIDEGATE`, and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"TIDEGATE");
const LAYOUT: u64 = 2;

/// The bytes before the shards.
const HEADER_BYTES: usize = 4096;
/// The bytes of the smallest file.
pub(super) const MIN_FILE: usize = 128 << 10;
const MIN_SHARD: usize = 1 << 20;
const MAX_SHARDS: usize = 64;

const FIELDS: usize = 8;
/// The places of both copies of [`Start`].
const STARTS: [usize; 2] = [8, 16];
/// The number, from 1 on, of the shard that a process with the lock of the file is making whole. Else 0.
pub(super) const REPAIRED: usize = 40;

/// Why a file cannot be used. Its text follows the name of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    Foreign,
    OtherLayout(u64),
    Damaged,
    OtherTime,
}

/// The numbers that are the same for every process from one start of the machine to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    boot: u64,
    /// The offset of the time in the namespace of all processes.
    offset: u64,
    /// The microseconds that the file adds to the time since the start of the machine.
    base: u64,
}

impl Start {
    fn numbers(self, seed: u64) -> [u64; 4] {
        let Self { boot, offset, base } = self;
        [boot, offset, base, digest(&[seed, boot, offset, base])]
    }

    /// Writes one copy after the other, so that one of them is whole if the process ends meanwhile.
    fn write(self, words: &Words, seed: u64) {
        for at in STARTS {
            self.numbers(seed).into_iter().enumerate().for_each(|(index, number)| words.store(at + index, number));
            fence(Ordering::Release);
        }
    }

    /// The first copy that is whole.
    fn read(words: &Words, seed: u64) -> Option<Self> {
        STARTS.into_iter().find_map(|at| {
            let [boot, offset, base, check] = [0, 1, 2, 3].map(|index| words.load(at + index));
            let start = Self { boot, offset, base };
            (start.numbers(seed)[3] == check).then_some(start)
        })
    }

    fn has_two_copies(self, words: &Words, seed: u64) -> bool {
        let numbers = self.numbers(seed);
        STARTS.into_iter().all(|at| (0..4).all(|index| words.load(at + index) == numbers[index]))
    }
}

/// The state of a file when it was opened.
pub(super) struct Opened {
    pub(super) geometry: Geometry,
    /// The microseconds that the file adds to the time since the start of the machine.
    pub(super) base: u64,
    /// The losses of a file that was made whole after a restart of the machine.
    pub(super) losses: Losses,
    /// Flags for a damaged copy of the start, and for damaged numbers about the time.
    pub(super) is_start_damaged: bool,
    pub(super) is_time_damaged: bool,
}

/// The parts of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) bytes: usize,
    pub(super) shards: usize,
    buckets: usize,
    blocks: usize,
    /// The seed of the names of records.
    pub(super) seed: u64,
}

impl Geometry {
    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        let shards = (bytes / MIN_SHARD).clamp(1, MAX_SHARDS);
        let shards = 1 << shards.ilog2();
        let words = (bytes - HEADER_BYTES) / 8 / shards / BLOCK * BLOCK - SHARD_HEAD;
        // A bucket for every two blocks: more of them would be spread over more pages.
        let buckets = words / (2 * BLOCK + 1) / BLOCK * BLOCK;
        let blocks = ((words - buckets) / BLOCK).min(MAX_BLOCKS);
        Self { bytes, shards, buckets, blocks, seed }
    }

    fn shard_words(&self) -> usize {
        SHARD_HEAD + self.buckets + self.blocks * BLOCK
    }

    fn fields(&self) -> [u64; FIELDS] {
        let Self { bytes, shards, buckets, blocks, seed } = *self;
        let [bytes, shards, buckets, blocks] = [bytes, shards, buckets, blocks].map(|number| number as u64);
        [MAGIC, LAYOUT, bytes, shards, buckets, blocks, seed, digest(&[bytes, shards, buckets, blocks, seed])]
    }

    /// Writes the header and the empty shards of a new file.
    pub(super) fn write(&self, words: &Words) {
        self.fields().iter().enumerate().for_each(|(at, number)| words.store(at, *number));
        (0..self.shards).for_each(|number| self.shard(words, number).clear());
        self.begin(words, system_clock::boot_id(), machine_clock::first_base(words));
    }

    fn begin(&self, words: &Words, boot: u64, base: u64) {
        Start { boot, base, offset: system_clock::time_offset() }.write(words, self.seed);
    }

    /// Reads the header of a file of that many bytes. After a restart of the machine it makes the shards whole.
    pub(super) fn read(words: &Words, bytes: usize) -> Result<Opened, Unusable> {
        if words.load(0) != MAGIC {
            return Err(Unusable::Foreign);
        }
        let geometry = Self::new(bytes.max(MIN_FILE), words.load(6));
        let fields = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| words.load(at));
        if geometry.fields() != fields {
            // A small number other than `LAYOUT` is another layout. Everything else is damage.
            let has_layout = fields[1] != LAYOUT && fields[1] < 1 << 16;
            return Err(if has_layout { Unusable::OtherLayout(fields[1]) } else { Unusable::Damaged });
        }
        let start = Start::read(words, geometry.seed).ok_or(Unusable::Damaged)?;
        let is_start_damaged = !start.has_two_copies(words, geometry.seed);
        let opened =
            |base| Opened { geometry, base, losses: Losses::default(), is_start_damaged, is_time_damaged: false };
        let boot = system_clock::boot_id();
        // If the system has an id of its start, the id decides, because times that this process reads are less certain.
        if start.boot == boot && (boot != 0 || !machine_clock::was_restarted(words, start.base)) {
            if start.offset != system_clock::time_offset() {
                return Err(Unusable::OtherTime);
            }
            if is_start_damaged {
                start.write(words, geometry.seed);
            }
            return Ok(opened(start.base));
        }
        let losses = (0..geometry.shards).map(|number| {
            words.store(REPAIRED, number as u64 + 1);
            let shard = geometry.shard(words, number);
            words.store(shard.at + LOCK, 0);
            LockedShard(shard).repair()
        });
        let losses = losses.sum();
        words.store(REPAIRED, 0);
        let (base, is_time_damaged) = machine_clock::next_base(words);
        geometry.begin(words, boot, base);
        // A copy that was not yet written when the machine went down is no damage.
        Ok(Opened { losses, is_time_damaged, is_start_damaged: false, ..opened(base) })
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
