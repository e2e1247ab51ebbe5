//! A part of the table: chains of records, each published by one compare-and-swap. docs/adr/0037 has the protocol.
//!
//! Numbers of blocks are stored from 1 on, and 0 is none. A bucket is the version of its chain and its first block. A record is a
//! chain of blocks, and never changes once it is published, but for its link to the next record of its bucket.

use super::record::{
    BLOCK, Check, Damaged, LENGTH, LENGTH_BITS, MOMENT, MOMENT_BITS, NAME, RECORD_HEAD, Record, RecordName, blocks_of,
    moment,
};
use super::sync::{Ordering, fence};
use super::words::Words;

/// The numbers of a shard before its buckets.
pub(super) const SHARD_HEAD: usize = 8;
/// The process that holds the lock.
pub(super) const LOCK: usize = 0;
/// The first free block, how many blocks were ever used, and how many are free.
pub(super) const FREE: usize = 1;
pub(super) const USED: usize = 2;
pub(super) const FREE_COUNT: usize = 3;
/// How many records there are, and the bucket at which the next removal begins to look.
pub(super) const KEYS: usize = 4;
pub(super) const HAND: usize = 5;

/// How often a reader begins again before it takes the lock.
const MAX_LOOKS: usize = 64;
/// Where a record stands in its bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordPlace {
    pub(super) block: u32,
    /// The first block of the record before it.
    pub(super) before: Option<u32>,
}

/// What a reader has found, as of a state of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) bucket: u64,
    pub(super) found: bool,
}

/// A shard that anyone may read.
#[derive(Clone, Copy)]
pub(super) struct FileShard<'a> {
    pub(super) words: &'a Words,
    /// Where it begins.
    pub(super) at: usize,
    pub(super) buckets: usize,
    pub(super) blocks: usize,
}

impl<'a> FileShard<'a> {
    #[inline]
    pub(super) fn bucket_at(&self, bucket: usize) -> usize {
        self.at + SHARD_HEAD + bucket
    }

    #[inline]
    pub(super) fn block_at(&self, block: u32) -> Result<usize, Damaged> {
        let index = block as usize - 1;
        if index < self.blocks { Ok(self.at + SHARD_HEAD + self.buckets + index * BLOCK) } else { Err(Damaged) }
    }

    #[inline]
    pub(super) fn head(&self, field: usize) -> u64 {
        self.words.load(self.at + field)
    }

    pub(super) fn set_head(&self, field: usize, number: u64) {
        self.words.store(self.at + field, number);
    }

    /// The next record of a bucket, and the next block of a record.
    #[inline]
    pub(super) fn links(&self, block: u32) -> Result<(Option<u32>, Option<u32>), Damaged> {
        let links = self.words.load(self.block_at(block)?);
        Ok((some(links as u32), some((links >> 32) as u32)))
    }

    /// The name of the record that begins with this block.
    #[inline]
    fn name(&self, block: u32) -> Result<RecordName, Damaged> {
        let at = self.block_at(block)? + NAME;
        Ok([self.words.load(at), self.words.load(at + 1)])
    }

    #[inline]
    pub(super) fn find(&self, bucket: u64, name: RecordName) -> Result<Option<RecordPlace>, Damaged> {
        let (mut next, mut before) = (some(bucket as u32), None);
        for _ in 0..=self.blocks {
            let Some(block) = next else { return Ok(None) };
            if self.name(block)? == name {
                return Ok(Some(RecordPlace { block, before }));
            }
            (before, next) = (next, self.links(block)?.0);
        }
        Err(Damaged)
    }

    /// Reads the record that begins with a block.
    #[inline]
    pub(super) fn read(&self, block: u32, record: &mut Record) -> Result<(), Damaged> {
        let at = self.block_at(block)?;
        let [expires, denies, lengths] = [1, 2, 3].map(|index| self.words.load(at + index));
        let length = (lengths & LENGTH) as usize;
        record.name = self.name(block)?;
        record.value_length = (lengths >> LENGTH_BITS & LENGTH) as usize;
        (record.expires_at, record.denies_until) = (moment(expires), moment(denies));
        if blocks_of(length) > self.blocks || record.value_length > length {
            return Err(Damaged);
        }
        record.bytes.clear();
        record.bytes.extend_from_slice(&((lengths >> (2 * LENGTH_BITS)) as u16).to_le_bytes());
        let mut check = Check::of(expires & MOMENT, denies & MOMENT, lengths, record.name);
        self.read_bytes::<{ BLOCK - RECORD_HEAD }>(at + RECORD_HEAD, length, record, &mut check);
        let mut block = block;
        while record.bytes.len() < length {
            block = self.links(block)?.1.ok_or(Damaged)?;
            self.read_bytes::<{ BLOCK - 1 }>(self.block_at(block)? + 1, length, record, &mut check);
        }
        record.bytes.truncate(length);
        if check.halves() == (expires >> MOMENT_BITS, denies >> MOMENT_BITS) { Ok(()) } else { Err(Damaged) }
    }

    /// Reads the bytes of a block; those behind so many are no part of the record.
    #[inline(always)]
    fn read_bytes<const N: usize>(&self, at: usize, length: usize, record: &mut Record, check: &mut Check) {
        let count = length.saturating_sub(record.bytes.len()).div_ceil(8);
        let mut bytes = [[0; 8]; N];
        for (index, bytes) in bytes.iter_mut().enumerate() {
            let number = self.words.load(at + index);
            if index < count {
                check.add(number);
            }
            *bytes = number.to_ne_bytes();
        }
        // All of them at once, so that their number is known to the compiler.
        record.bytes.extend_from_slice(bytes.as_flattened());
    }

    /// Reads what is stored of a key, without the lock. `None` where others write too often.
    #[inline]
    pub(super) fn look(&self, bucket: usize, name: RecordName, record: &mut Record) -> Result<Option<Look>, Damaged> {
        self.read_unchanged(bucket, |bucket| {
            let place = self.find(bucket, name)?;
            let found = place.map_or(Ok(false), |place| self.read(place.block, record).map(|()| true))?;
            Ok(Look { bucket, found })
        })
    }

    /// The records of a bucket, without the lock. `None` where others write too often.
    pub(super) fn records(&self, bucket: usize) -> Result<Option<Vec<Record>>, Damaged> {
        self.read_unchanged(bucket, |bucket| self.chain(bucket))
    }

    /// What is read of one state of a bucket.
    #[inline(always)]
    fn read_unchanged<T>(
        &self,
        bucket: usize,
        mut read: impl FnMut(u64) -> Result<T, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        let at = self.bucket_at(bucket);
        for _ in 0..MAX_LOOKS {
            let before = self.words.read_published(at);
            let found = read(before);
            // What was read is of one state of the bucket where that did not change meanwhile: blocks are used again only behind a
            // change of it.
            fence(Ordering::Acquire);
            if self.words.load(at) == before {
                return found.map(Some);
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }

    fn chain(&self, bucket: u64) -> Result<Vec<Record>, Damaged> {
        let (mut next, mut records) = (some(bucket as u32), Vec::new());
        while let Some(block) = next {
            let mut record = Record::default();
            self.read(block, &mut record)?;
            records.push(record);
            next = if records.len() <= self.blocks { self.links(block)?.0 } else { return Err(Damaged) };
        }
        Ok(records)
    }
}

pub(super) fn some(block: u32) -> Option<u32> {
    (block > 0).then_some(block)
}
