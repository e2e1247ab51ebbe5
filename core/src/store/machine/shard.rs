//! A part of the table: chains of records, each published by one compare-and-swap. docs/adr/0037 has the protocol.
//!
//! Block numbers begin with 1, and 0 is none. A bucket is the version of its chain and its first block. A record is a
//! chain of blocks. Once it is published it never changes, except for its link to the next record of its bucket. Every
//! bucket and every link is sealed.

use super::record::{
    BLOCK, Check, Damaged, LENGTH, LENGTH_BITS, MOMENT, MOMENT_BITS, NAME, RECORD_HEAD, Record, RecordName, blocks_of,
    moment,
};
use super::seal::{HALF, Salt, halves};
use super::sync::{Ordering, fence};
use super::words::Words;

/// The numbers of a shard before its buckets.
pub(super) const SHARD_HEAD: usize = 8;
/// The process that holds the lock.
pub(super) const LOCK: usize = 0;
/// How many of the used blocks are free, and the first of them.
pub(super) const FREE: usize = 1;
/// How many records there are, and how many blocks were ever used.
pub(super) const COUNTS: usize = 2;
/// The bucket at which the next removal begins to look.
pub(super) const HAND: usize = 3;
/// The most blocks of a shard: so many have a number.
pub(super) const MAX_BLOCKS: usize = HALF as usize;

/// How often a reader begins again before it takes the lock.
const MAX_LOOKS: usize = 64;
/// The place of a record in its bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordPlace {
    pub(super) block: u32,
    /// The first block of the record before it.
    pub(super) before: Option<u32>,
}

/// The result of a reader's look, at one state of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) bucket: u64,
    pub(super) found: bool,
}

/// A shard that anyone may read.
#[derive(Clone, Copy)]
pub(super) struct FileShard<'a> {
    pub(super) words: &'a Words,
    /// The index of its first word.
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

    /// The two numbers of a field before the buckets.
    #[inline]
    pub(super) fn head(&self, field: usize) -> Result<(u64, u64), Damaged> {
        let at = self.at + field;
        Salt::at(at).open_both(self.words.load(at))
    }

    /// The same, without a check.
    #[inline]
    pub(super) fn raw_head(&self, field: usize) -> (u64, u64) {
        halves(self.words.load(self.at + field))
    }

    #[inline]
    pub(super) fn set_head(&self, field: usize, high: u64, low: u64) {
        let at = self.at + field;
        self.words.store(at, Salt::at(at).seal_both(high, low));
    }

    /// Makes it an empty shard.
    pub(super) fn clear(&self) {
        [FREE, COUNTS, HAND].into_iter().for_each(|field| self.set_head(field, 0, 0));
        for bucket in 0..self.buckets {
            let at = self.bucket_at(bucket);
            self.words.store(at, Salt::at(at).seal_both(0, 0));
        }
    }

    /// The first block of a bucket in that state.
    #[inline]
    pub(super) fn first(&self, bucket: usize, state: u64) -> Result<Option<u32>, Damaged> {
        let (_, first) = Salt::at(self.bucket_at(bucket)).open_both(state)?;
        Ok(some(first as u32))
    }

    /// The first block of a bucket now.
    #[inline]
    pub(super) fn first_now(&self, bucket: usize) -> Result<Option<u32>, Damaged> {
        self.first(bucket, self.words.load(self.bucket_at(bucket)))
    }

    /// The next block of a record or of the free blocks.
    #[inline]
    pub(super) fn next(&self, block: u32) -> Result<Option<u32>, Damaged> {
        let at = self.block_at(block)?;
        let (next, _) = Salt::at(at).open_both(self.words.load(at))?;
        Ok(some(next as u32))
    }

    #[inline]
    pub(super) fn set_next(&self, block: u32, next: u64) -> Result<(), Damaged> {
        let at = self.block_at(block)?;
        self.words.store(at, Salt::at(at).seal_both(next, 0));
        Ok(())
    }

    /// The links of a record by its first block: the next record of its bucket, and its own next block. They are sealed
    /// with its name, so that a search does not pass a record with a damaged name unnoticed.
    #[inline]
    pub(super) fn links(&self, block: u32) -> Result<(Option<u32>, Option<u32>), Damaged> {
        let at = self.block_at(block)?;
        let (next, link) = Salt::at(at).with(self.name(at)).open_both(self.words.load(at))?;
        Ok((some(link as u32), some(next as u32)))
    }

    #[inline]
    pub(super) fn set_links(&self, block: u32, name: RecordName, next: u64, link: u64) -> Result<(), Damaged> {
        let at = self.block_at(block)?;
        self.words.store(at, Salt::at(at).with(name).seal_both(next, link));
        Ok(())
    }

    /// The name of the record that begins there.
    #[inline]
    pub(super) fn name(&self, at: usize) -> RecordName {
        [self.words.load(at + NAME), self.words.load(at + NAME + 1)]
    }

    #[inline]
    pub(super) fn find(&self, bucket: usize, state: u64, name: RecordName) -> Result<Option<RecordPlace>, Damaged> {
        let (mut next, mut before) = (self.first(bucket, state)?, None);
        for _ in 0..=self.blocks {
            let Some(block) = next else { return Ok(None) };
            if self.name(self.block_at(block)?) == name {
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
        record.name = self.name(at);
        record.value_length = (lengths >> LENGTH_BITS & LENGTH) as usize;
        (record.expires_at, record.denies_until) = (moment(expires), moment(denies));
        if blocks_of(length) > self.blocks || record.value_length > length {
            return Err(Damaged);
        }
        record.bytes.clear();
        record.bytes.extend_from_slice(&((lengths >> (2 * LENGTH_BITS)) as u16).to_le_bytes());
        let mut check = Check::of(expires & MOMENT, denies & MOMENT, lengths, record.name);
        self.read_bytes::<{ BLOCK - RECORD_HEAD }>(at + RECORD_HEAD, length, record, &mut check);
        let mut next = if record.bytes.len() < length { self.links(block)?.1 } else { None };
        while record.bytes.len() < length {
            let block = next.ok_or(Damaged)?;
            next = self.next(block)?;
            self.read_bytes::<{ BLOCK - 1 }>(self.block_at(block)? + 1, length, record, &mut check);
        }
        record.bytes.truncate(length);
        if check.halves() == (expires >> MOMENT_BITS, denies >> MOMENT_BITS) { Ok(()) } else { Err(Damaged) }
    }

    /// Reads the bytes of a block. Bytes beyond `length` are no part of the record.
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

    /// Reads the record of a key, without the lock. `None` if others write too often.
    #[inline]
    pub(super) fn look(&self, bucket: usize, name: RecordName, record: &mut Record) -> Result<Option<Look>, Damaged> {
        self.read_unchanged(bucket, |state| {
            let place = self.find(bucket, state, name)?;
            let found = place.map_or(Ok(false), |place| self.read(place.block, record).map(|()| true))?;
            Ok(Look { bucket: state, found })
        })
    }

    /// The records of a bucket, without the lock. `None` if others write too often.
    pub(super) fn records(&self, bucket: usize) -> Result<Option<Vec<Record>>, Damaged> {
        self.read_unchanged(bucket, |state| self.chain(bucket, state))
    }

    /// Reads from one state of a bucket. `None` if it changes too often.
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
            // If the bucket did not change meanwhile, everything was read from one state of it, because blocks are used
            // again only after a change of it.
            fence(Ordering::Acquire);
            if self.words.load(at) == before {
                return found.map(Some);
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }

    fn chain(&self, bucket: usize, state: u64) -> Result<Vec<Record>, Damaged> {
        let (mut next, mut records) = (self.first(bucket, state)?, Vec::new());
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
