//! What changes a shard, under its lock.

use super::record::{
    BLOCK, Check, Damaged, FIRST_BYTES, MAX_BYTES, MOMENT, MOMENT_BITS, NAME, RECORD_HEAD, Record, RecordName,
    lengths_of, moment, number_of,
};
use super::shard::{FREE, FREE_COUNT, FileShard, HAND, KEYS, Look, RecordPlace, USED, some};
use super::sync::{Ordering, fence};

/// Records compared to find the one to remove, and looked at for one that does not deny its key.
const CANDIDATES: usize = 16;
const DENYING_CANDIDATES: usize = 256;

/// What was removed to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Expired,
    Live,
    /// A record that was denying its key.
    Denial,
}

/// A shard whose lock this thread holds.
pub(super) struct LockedShard<'a>(pub(super) FileShard<'a>);

impl LockedShard<'_> {
    /// Whether nothing of a bucket has changed since a reader looked.
    pub(super) fn is_unchanged(&self, bucket: usize, look: Look) -> bool {
        self.0.words.load(self.0.bucket_at(bucket)) == look.bucket
    }

    pub(super) fn read(&self, bucket: usize, name: RecordName, record: &mut Record) -> Result<bool, Damaged> {
        let place = self.0.find(self.0.words.load(self.0.bucket_at(bucket)), name)?;
        place.map_or(Ok(false), |place| self.0.read(place.block, record).map(|()| true))
    }

    /// Whether a record could be stored if nothing else were.
    pub(super) fn can_have(&self, record: &Record) -> bool {
        record.blocks() <= self.0.blocks && record.bytes.len() <= MAX_BYTES
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
        Ok(self.0.find(state, record.name)?.is_some())
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
        let lengths = lengths_of(record);
        let (expires, denies) = (record.expires_at.min(MOMENT), record.denies_until.min(MOMENT));
        let mut check = Check::of(expires, denies, lengths, record.name);
        let mut chunks = record.bytes.get(FIRST_BYTES..).unwrap_or_default().chunks(8).map(number_of);
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
        shard.words.store(at + NAME, record.name[0]);
        shard.words.store(at + NAME + 1, record.name[1]);
        Ok(first)
    }

    /// Stores a record in place of what there is of its key. There has to be room for it.
    pub(super) fn write(&self, bucket: usize, record: &Record) -> Result<(), Damaged> {
        let shard = &self.0;
        let at = shard.bucket_at(bucket);
        let before = shard.words.load(at);
        let known = shard.find(before, record.name)?;
        match known {
            Some(RecordPlace { block, before: None }) => {
                let first = self.prepare(record, shard.links(block)?.0)?;
                self.publish(at, before, Some(first))?;
                self.free(block)
            }
            // In front of what it replaces, which is hidden then, until it is taken out.
            Some(RecordPlace { block, before: Some(earlier) }) => {
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
        // A reader that sees the shorter chain sees too that the bucket has changed since.
        fence(Ordering::Release);
        shard.words.store(place, links >> 32 << 32 | u64::from(link.unwrap_or(0)));
        self.publish(at, bucket, some(bucket as u32))?;
        self.free(block)
    }

    fn remove_at(&self, bucket: usize, RecordPlace { block, before }: RecordPlace) -> Result<(), Damaged> {
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
    pub(super) fn remove(&self, bucket: usize, name: RecordName) -> Result<(), Damaged> {
        let place = self.0.find(self.0.words.load(self.0.bucket_at(bucket)), name)?;
        place.map_or(Ok(()), |place| self.remove_at(bucket, place))
    }

    /// Removes every record of which `is_wanted` says so, by its name. One that cannot be read is removed too.
    pub(super) fn remove_all(&self, is_wanted: impl Fn(RecordName) -> bool) -> Result<(), Damaged> {
        let mut record = Record::default();
        for bucket in 0..self.0.buckets {
            let (mut next, mut before) = (some(self.0.words.load(self.0.bucket_at(bucket)) as u32), None);
            while let Some(block) = next {
                let link = self.0.links(block)?.0;
                let readable = self.0.read(block, &mut record).is_ok();
                if !readable || is_wanted(record.name) {
                    self.remove_at(bucket, RecordPlace { block, before })?;
                } else {
                    before = next;
                }
                next = link;
            }
        }
        Ok(())
    }

    /// Removes records until there is room, that of `spared` last. Returns what was removed that mattered most; `None` where nothing
    /// could be.
    pub(super) fn make_room(&self, now: u64, spared: usize) -> Result<Option<Removed>, Damaged> {
        let shard = &self.0;
        let mut hand = shard.head(HAND) as usize % shard.buckets.max(1);
        let mut victim: Option<(usize, RecordPlace, u64)> = None;
        let mut denial: Option<(usize, RecordPlace, u64)> = None;
        let (mut live, mut denying) = (0, 0);
        for _ in 0..shard.buckets {
            hand = (hand + 1) % shard.buckets;
            let (mut next, mut before) = (some(shard.words.load(shard.bucket_at(hand)) as u32), None);
            while let Some(block) = next {
                let at = shard.block_at(block)?;
                let (expires, denies) = (moment(shard.words.load(at + 1)), moment(shard.words.load(at + 2)));
                let place = RecordPlace { block, before };
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
}

/// The bucket after a change of its chain.
pub(super) fn changed(bucket: u64, first: Option<u32>) -> u64 {
    ((bucket >> 32).wrapping_add(1) & 0xffff_ffff) << 32 | u64::from(first.unwrap_or(0))
}
