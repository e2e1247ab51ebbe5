//! A part of the table: chains of records, each published by one compare-and-swap. docs/adr/0037 has the protocol.
//!
//! Numbers of blocks are stored from 1 on, and 0 is none. A bucket is the version of its chain and its first block. A record is a
//! chain of blocks, and never changes once it is published, but for its link to the next record of its bucket.

use super::sync::{Ordering, fence};
use super::words::Words;

/// The numbers of a shard before its buckets.
pub(super) const SHARD_HEAD: usize = 8;
/// The process that holds the lock.
pub(super) const LOCK: usize = 0;
/// The first free block, how many blocks were ever used, and how many are free.
const FREE: usize = 1;
const USED: usize = 2;
const FREE_COUNT: usize = 3;
/// How many records there are, and the bucket at which the next removal begins to look.
const KEYS: usize = 4;
const HAND: usize = 5;

/// Numbers of a block, of which the first one of a record has these before its bytes: its links, when it expires, until when it
/// denies its key, its lengths. Any other has its link.
pub(super) const BLOCK: usize = 8;
const RECORD_HEAD: usize = 4;
const BYTES_IN_FIRST: usize = (BLOCK - RECORD_HEAD) * 8;
const BYTES_IN_OTHER: usize = (BLOCK - 1) * 8;

/// The bits of a moment; those above have a part of the check of the record.
const MOMENT_BITS: u32 = 54;
const MOMENT: u64 = (1 << MOMENT_BITS) - 1;
const CHECK_BITS: u32 = 64 - MOMENT_BITS;
/// The bits of a length of bytes.
const LENGTH_BITS: u32 = 28;
const LENGTH: u64 = (1 << LENGTH_BITS) - 1;
/// The longest key and the most bytes of a record.
pub(super) const MAX_KEY: usize = 255;
pub(super) const MAX_BYTES: usize = LENGTH as usize;

/// How often a reader begins again before it takes the lock.
const MAX_LOOKS: usize = 64;
/// Records compared to find the one to remove, and looked at for one that does not deny its key.
const CANDIDATES: usize = 16;
const DENYING_CANDIDATES: usize = 256;

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

    fn blocks(&self) -> usize {
        blocks_of(self.bytes.len())
    }
}

fn blocks_of(bytes: usize) -> usize {
    1 + bytes.saturating_sub(BYTES_IN_FIRST).div_ceil(BYTES_IN_OTHER)
}

/// The file has numbers that no process of ours writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// Where a record stands in its bucket.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: u32,
    /// The first block of the record before it.
    before: Option<u32>,
}

/// What a reader has found, as of a state of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) bucket: u64,
    pub(super) found: bool,
}

/// What was removed to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Expired,
    Live,
    /// A record that was denying its key.
    Denial,
}

/// A shard that anyone may read.
#[derive(Clone, Copy)]
pub(super) struct Shard<'a> {
    pub(super) words: &'a Words,
    /// Where it begins.
    pub(super) at: usize,
    pub(super) buckets: usize,
    pub(super) blocks: usize,
}

impl<'a> Shard<'a> {
    fn bucket_at(&self, bucket: usize) -> usize {
        self.at + SHARD_HEAD + bucket
    }

    fn block_at(&self, block: u32) -> Result<usize, Damaged> {
        let index = block as usize - 1;
        if index < self.blocks { Ok(self.at + SHARD_HEAD + self.buckets + index * BLOCK) } else { Err(Damaged) }
    }

    fn head(&self, field: usize) -> u64 {
        self.words.load(self.at + field)
    }

    fn set_head(&self, field: usize, number: u64) {
        self.words.store(self.at + field, number);
    }

    /// The next record of a bucket, and the next block of a record.
    fn links(&self, block: u32) -> Result<(Option<u32>, Option<u32>), Damaged> {
        let links = self.words.load(self.block_at(block)?);
        Ok((some(links as u32), some((links >> 32) as u32)))
    }

    /// Whether the record that begins with this block is of a key.
    fn is_of(&self, block: u32, key: &[u8]) -> Result<bool, Damaged> {
        let at = self.block_at(block)?;
        if (self.words.load(at + 3) >> (2 * LENGTH_BITS)) as usize != key.len() {
            return Ok(false);
        }
        let (mut rest, mut at, mut from, mut block) = (key, at, RECORD_HEAD, block);
        loop {
            for index in from..BLOCK {
                let bytes = self.words.load(at + index).to_ne_bytes();
                let length = rest.len().min(8);
                if bytes[..length] != rest[..length] {
                    return Ok(false);
                }
                rest = &rest[length..];
                if rest.is_empty() {
                    return Ok(true);
                }
            }
            block = self.links(block)?.1.ok_or(Damaged)?;
            (at, from) = (self.block_at(block)?, 1);
        }
    }

    fn find(&self, bucket: u64, key: &[u8]) -> Result<Option<Place>, Damaged> {
        let (mut next, mut before) = (some(bucket as u32), None);
        for _ in 0..=self.blocks {
            let Some(block) = next else { return Ok(None) };
            if self.is_of(block, key)? {
                return Ok(Some(Place { block, before }));
            }
            (before, next) = (next, self.links(block)?.0);
        }
        Err(Damaged)
    }

    /// Reads the record that begins with a block.
    fn read(&self, block: u32, record: &mut Record) -> Result<(), Damaged> {
        let at = self.block_at(block)?;
        let [expires, denies, lengths] = [1, 2, 3].map(|index| self.words.load(at + index));
        let length = (lengths & LENGTH) as usize;
        record.value_length = (lengths >> LENGTH_BITS & LENGTH) as usize;
        record.key_length = (lengths >> (2 * LENGTH_BITS)) as usize;
        (record.expires_at, record.denies_until) = (moment(expires), moment(denies));
        if blocks_of(length) > self.blocks || record.key_length + record.value_length > length {
            return Err(Damaged);
        }
        record.bytes.clear();
        record.bytes.reserve(blocks_of(length) * BLOCK * 8);
        let mut check = Check::of(expires & MOMENT, denies & MOMENT, lengths);
        let (mut at, mut from, mut block) = (at, RECORD_HEAD, block);
        loop {
            for index in from..BLOCK {
                let number = self.words.load(at + index);
                if record.bytes.len() < length {
                    check.add(number);
                    record.bytes.extend_from_slice(&number.to_ne_bytes());
                }
            }
            if record.bytes.len() >= length {
                break;
            }
            block = self.links(block)?.1.ok_or(Damaged)?;
            (at, from) = (self.block_at(block)?, 1);
        }
        record.bytes.truncate(length);
        if check.halves() == (expires >> MOMENT_BITS, denies >> MOMENT_BITS) { Ok(()) } else { Err(Damaged) }
    }

    /// Reads what is stored of a key, without the lock. `None` where others write too often.
    pub(super) fn look(&self, bucket: usize, key: &[u8], record: &mut Record) -> Result<Option<Look>, Damaged> {
        let at = self.bucket_at(bucket);
        for _ in 0..MAX_LOOKS {
            let before = self.words.read_published(at);
            let found = self.find(before, key).and_then(|place| match place {
                Some(place) => self.read(place.block, record).map(|()| true),
                None => Ok(false),
            });
            // What was read is of one state of the bucket where that did not change meanwhile: blocks are used again only behind a
            // change of it.
            fence(Ordering::Acquire);
            if self.words.load(at) == before {
                return found.map(|found| Some(Look { bucket: before, found }));
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }
}

fn some(block: u32) -> Option<u32> {
    (block > 0).then_some(block)
}

/// A moment as it is stored: the last one that there is stands for never.
fn moment(stored: u64) -> u64 {
    if stored & MOMENT == MOMENT { u64::MAX } else { stored & MOMENT }
}

/// The bucket after a change of its chain.
fn changed(bucket: u64, first: Option<u32>) -> u64 {
    ((bucket >> 32).wrapping_add(1) & 0xffff_ffff) << 32 | u64::from(first.unwrap_or(0))
}

/// What tells a record from other bytes.
struct Check(u64);

impl Check {
    fn of(expires: u64, denies: u64, lengths: u64) -> Self {
        let mut check = Self(0x6c62_272e_07bb_0142);
        [expires, denies, lengths].into_iter().for_each(|number| check.add(number));
        check
    }

    #[inline(always)]
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn halves(&self) -> (u64, u64) {
        let mixed = self.0 ^ self.0 >> 32;
        (mixed >> (64 - CHECK_BITS), mixed >> (64 - 2 * CHECK_BITS) & ((1 << CHECK_BITS) - 1))
    }
}

/// A shard whose lock this thread holds.
pub(super) struct LockedShard<'a>(pub(super) Shard<'a>);

impl LockedShard<'_> {
    /// Whether nothing of a bucket has changed since a reader looked.
    pub(super) fn is_unchanged(&self, bucket: usize, look: Look) -> bool {
        self.0.words.load(self.0.bucket_at(bucket)) == look.bucket
    }

    pub(super) fn read(&self, bucket: usize, key: &[u8], record: &mut Record) -> Result<bool, Damaged> {
        let place = self.0.find(self.0.words.load(self.0.bucket_at(bucket)), key)?;
        place.map_or(Ok(false), |place| self.0.read(place.block, record).map(|()| true))
    }

    /// Whether a record could be stored if nothing else were.
    pub(super) fn can_have(&self, record: &Record) -> bool {
        record.blocks() <= self.0.blocks && record.bytes.len() <= MAX_BYTES && record.key_length <= MAX_KEY
    }

    /// Whether a record finds room, where there may be so many keys.
    pub(super) fn has_room(&self, bucket: usize, record: &Record, max_keys: usize) -> Result<bool, Damaged> {
        if self.0.head(FREE_COUNT) + self.unused() < record.blocks() as u64 {
            return Ok(false);
        }
        if (self.0.head(KEYS) as usize) < max_keys {
            return Ok(true);
        }
        let state = self.0.words.load(self.0.bucket_at(bucket));
        Ok(self.0.find(state, &record.bytes[..record.key_length])?.is_some())
    }

    /// Blocks that were never used.
    fn unused(&self) -> u64 {
        (self.0.blocks as u64).saturating_sub(self.0.head(USED))
    }

    fn take_block(&self) -> Result<u32, Damaged> {
        let shard = &self.0;
        let Some(block) = some(shard.head(FREE) as u32) else {
            let used = shard.head(USED);
            if used >= shard.blocks as u64 {
                return Err(Damaged);
            }
            shard.set_head(USED, used + 1);
            return Ok(used as u32 + 1);
        };
        let next = shard.words.load(shard.block_at(block)?) >> 32;
        shard.set_head(FREE, next);
        shard.set_head(FREE_COUNT, shard.head(FREE_COUNT).checked_sub(1).ok_or(Damaged)?);
        Ok(block)
    }

    /// Frees the blocks of a record that no chain has any more.
    fn free(&self, block: u32) -> Result<(), Damaged> {
        let shard = &self.0;
        // Readers that see what follows see the change of the bucket too.
        fence(Ordering::Release);
        let mut next = Some(block);
        for _ in 0..=shard.blocks {
            let Some(block) = next else { return Ok(()) };
            next = shard.links(block)?.1;
            shard.words.store(shard.block_at(block)?, shard.head(FREE) << 32);
            shard.set_head(FREE, block.into());
            shard.set_head(FREE_COUNT, shard.head(FREE_COUNT) + 1);
        }
        Err(Damaged)
    }

    /// Writes a record aside; returns its first block.
    fn prepare(&self, record: &Record, link: Option<u32>) -> Result<u32, Damaged> {
        let shard = &self.0;
        fence(Ordering::Release);
        let first = self.take_block()?;
        let lengths = record.bytes.len() as u64
            | (record.value_length as u64) << LENGTH_BITS
            | (record.key_length as u64) << (2 * LENGTH_BITS);
        let (expires, denies) = (record.expires_at.min(MOMENT), record.denies_until.min(MOMENT));
        let mut check = Check::of(expires, denies, lengths);
        let mut chunks = record.bytes.chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(bytes)
        });
        let (mut block, mut from) = (first, RECORD_HEAD);
        let mut link = link.unwrap_or(0);
        let mut left = record.blocks();
        loop {
            let at = shard.block_at(block)?;
            for index in from..BLOCK {
                let Some(number) = chunks.next() else { break };
                check.add(number);
                shard.words.store(at + index, number);
            }
            left -= 1;
            let next = if left > 0 { self.take_block()? } else { 0 };
            shard.words.store(at, u64::from(next) << 32 | u64::from(link));
            if left == 0 {
                break;
            }
            (block, from, link) = (next, 1, 0);
        }
        let (high, low) = check.halves();
        let at = shard.block_at(first)?;
        shard.words.store(at + 1, high << MOMENT_BITS | expires);
        shard.words.store(at + 2, low << MOMENT_BITS | denies);
        shard.words.store(at + 3, lengths);
        Ok(first)
    }

    /// Stores a record in place of what there is of its key. There has to be room for it.
    pub(super) fn write(&self, bucket: usize, record: &Record) -> Result<(), Damaged> {
        let shard = &self.0;
        let at = shard.bucket_at(bucket);
        let before = shard.words.load(at);
        let known = shard.find(before, &record.bytes[..record.key_length])?;
        match known {
            Some(Place { block, before: None }) => {
                let first = self.prepare(record, shard.links(block)?.0)?;
                self.publish(at, before, Some(first))?;
                self.free(block)
            }
            // In front of what it replaces, which is hidden then, until it is taken out.
            Some(Place { block, before: Some(earlier) }) => {
                let first = self.prepare(record, some(before as u32))?;
                let published = self.publish(at, before, Some(first))?;
                self.unlink(at, published, block, earlier)
            }
            None => {
                let first = self.prepare(record, some(before as u32))?;
                self.publish(at, before, Some(first))?;
                shard.set_head(KEYS, shard.head(KEYS) + 1);
                Ok(())
            }
        }
    }

    fn publish(&self, at: usize, before: u64, first: Option<u32>) -> Result<u64, Damaged> {
        let bucket = changed(before, first);
        // Only the holder of the lock writes here.
        if self.0.words.publish(at, before, bucket) { Ok(bucket) } else { Err(Damaged) }
    }

    /// Takes a record out that has another one before it.
    fn unlink(&self, at: usize, bucket: u64, block: u32, earlier: u32) -> Result<(), Damaged> {
        let shard = &self.0;
        let (link, _) = shard.links(block)?;
        let place = shard.block_at(earlier)?;
        let links = shard.words.load(place);
        shard.words.store(place, links >> 32 << 32 | u64::from(link.unwrap_or(0)));
        self.publish(at, bucket, some(bucket as u32))?;
        self.free(block)
    }

    fn remove_at(&self, bucket: usize, Place { block, before }: Place) -> Result<(), Damaged> {
        let shard = &self.0;
        let at = shard.bucket_at(bucket);
        let state = shard.words.load(at);
        match before {
            None => {
                self.publish(at, state, shard.links(block)?.0)?;
                self.free(block)?;
            }
            Some(earlier) => self.unlink(at, state, block, earlier)?,
        }
        shard.set_head(KEYS, shard.head(KEYS).saturating_sub(1));
        Ok(())
    }

    /// Removes what is stored of a key, if anything is.
    pub(super) fn remove(&self, bucket: usize, key: &[u8]) -> Result<(), Damaged> {
        let place = self.0.find(self.0.words.load(self.0.bucket_at(bucket)), key)?;
        place.map_or(Ok(()), |place| self.remove_at(bucket, place))
    }

    /// Removes every record of which `is_wanted` says so, by its key. One that cannot be read is removed too.
    pub(super) fn remove_all(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Result<(), Damaged> {
        let mut record = Record::default();
        for bucket in 0..self.0.buckets {
            let (mut next, mut before) = (some(self.0.words.load(self.0.bucket_at(bucket)) as u32), None);
            while let Some(block) = next {
                let link = self.0.links(block)?.0;
                let readable = self.0.read(block, &mut record).is_ok();
                if !readable || is_wanted(&record.bytes[..record.key_length]) {
                    self.remove_at(bucket, Place { block, before })?;
                } else {
                    before = next;
                }
                next = link;
            }
        }
        Ok(())
    }

    /// Calls the function with each record.
    pub(super) fn each(&self, mut seen: impl FnMut(&Record)) -> Result<(), Damaged> {
        let mut record = Record::default();
        for bucket in 0..self.0.buckets {
            let mut next = some(self.0.words.load(self.0.bucket_at(bucket)) as u32);
            for _ in 0..=self.0.blocks {
                let Some(block) = next else { break };
                self.0.read(block, &mut record)?;
                seen(&record);
                next = self.0.links(block)?.0;
            }
        }
        Ok(())
    }

    /// Removes records until there is room, that of `spared` last. Returns what was removed that mattered most; `None` where nothing
    /// could be.
    pub(super) fn make_room(&self, now: u64, spared: usize) -> Result<Option<Removed>, Damaged> {
        let shard = &self.0;
        let mut hand = shard.head(HAND) as usize % shard.buckets.max(1);
        let mut victim: Option<(usize, Place, u64)> = None;
        let mut denial: Option<(usize, Place, u64)> = None;
        let (mut live, mut denying) = (0, 0);
        for _ in 0..shard.buckets {
            hand = (hand + 1) % shard.buckets;
            let (mut next, mut before) = (some(shard.words.load(shard.bucket_at(hand)) as u32), None);
            while let Some(block) = next {
                let at = shard.block_at(block)?;
                let (expires, denies) = (moment(shard.words.load(at + 1)), moment(shard.words.load(at + 2)));
                let place = Place { block, before };
                if expires <= now {
                    self.remove_at(hand, place)?;
                    shard.set_head(HAND, hand as u64);
                    return Ok(Some(Removed::Expired));
                }
                if hand == spared {
                    // The call about this bucket knows what it has read of it.
                } else if denies <= now {
                    live += 1;
                    if victim.is_none_or(|(_, _, ends)| expires < ends) {
                        victim = Some((hand, place, expires));
                    }
                } else {
                    denying += 1;
                    if denial.is_none_or(|(_, _, ends)| denies < ends) {
                        denial = Some((hand, place, denies));
                    }
                }
                (before, next) = (next, shard.links(block)?.0);
            }
            if live >= CANDIDATES || live > 0 && live + denying >= CANDIDATES || denying >= DENYING_CANDIDATES {
                break;
            }
        }
        shard.set_head(HAND, hand as u64);
        let (removed, found) = match (victim, denial) {
            (Some(victim), _) => (Removed::Live, victim),
            (None, Some(denial)) => (Removed::Denial, denial),
            (None, None) => return Ok(None),
        };
        self.remove_at(found.0, found.1)?;
        Ok(Some(removed))
    }

    /// Makes the shard whole after a process that ended while it held the lock, or after a restart of the machine: what is reachable
    /// stays, and every other block is free. Returns how many records were damaged, and are gone.
    pub(super) fn repair(&self) -> usize {
        let shard = &self.0;
        let mut taken = vec![false; shard.blocks];
        let (mut keys, mut damaged) = (0, 0);
        let mut record = Record::default();
        for bucket in 0..shard.buckets {
            let at = shard.bucket_at(bucket);
            let state = shard.words.load(at);
            let mut seen: Vec<(u32, Vec<u8>)> = Vec::new();
            let mut next = some(state as u32);
            while let Some(block) = next {
                let readable = shard.block_at(block).is_ok() && !taken[block as usize - 1];
                let blocks =
                    if readable && shard.read(block, &mut record).is_ok() { self.blocks_of(block) } else { None };
                let Some(blocks) = blocks.filter(|blocks| blocks.iter().all(|block| !taken[*block as usize - 1]))
                else {
                    damaged += 1;
                    next = if readable { shard.links(block).ok().and_then(|(link, _)| link) } else { None };
                    continue;
                };
                let key = record.bytes[..record.key_length].to_vec();
                if !seen.iter().any(|(_, known)| *known == key) {
                    blocks.iter().for_each(|block| taken[*block as usize - 1] = true);
                    seen.push((block, key));
                }
                next = shard.links(block).ok().and_then(|(link, _)| link);
            }
            keys += seen.len();
            // From the last record to the first, so that each link leads to what is whole already.
            let mut link = 0;
            for (block, _) in seen.iter().rev() {
                if let Ok(place) = shard.block_at(*block) {
                    let links = shard.words.load(place);
                    shard.words.store(place, links >> 32 << 32 | u64::from(link));
                    link = *block;
                }
            }
            if state as u32 != 0 {
                shard.words.release(at, changed(state, some(link)));
            }
        }
        fence(Ordering::Release);
        let (mut free, mut count) = (0, 0);
        for index in (0..shard.blocks).rev().filter(|index| !taken[*index]) {
            if let Ok(place) = shard.block_at(index as u32 + 1) {
                shard.words.store(place, free << 32);
                (free, count) = (index as u64 + 1, count + 1);
            }
        }
        shard.set_head(FREE, free);
        shard.set_head(FREE_COUNT, count);
        shard.set_head(USED, shard.blocks as u64);
        shard.set_head(KEYS, keys as u64);
        damaged
    }

    /// The blocks of a record.
    fn blocks_of(&self, block: u32) -> Option<Vec<u32>> {
        let mut blocks = vec![block];
        while blocks.len() <= self.0.blocks {
            let last = *blocks.last()?;
            match self.0.links(last).ok()?.1 {
                Some(next) => {
                    self.0.block_at(next).ok()?;
                    blocks.push(next);
                }
                None => return Some(blocks),
            }
        }
        None
    }
}
