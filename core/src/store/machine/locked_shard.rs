//! Changes a shard, under its lock.

use super::record::{
    BLOCK, Check, Damaged, FIRST_BYTES, MAX_BYTES, MOMENT, MOMENT_BITS, NAME, RECORD_HEAD, Record, RecordName,
    lengths_of, moment, number_of,
};
use super::seal::{HALF_BITS, Salt};
use super::shard::{COUNTS, FREE, FileShard, HAND, Look, RecordPlace, some};
use super::sync::{Ordering, fence};

/// Records compared to find the one to remove, and records searched for one that does not deny its key.
const CANDIDATES: usize = 16;
const DENYING_CANDIDATES: usize = 256;

/// The sort of record that was removed to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Expired,
    Live,
    /// A record that was denying its key.
    Denial,
}

/// The free blocks as the holder of the lock has them: how many, and the first. It stores them after a change, because
/// no other process reads them and a repair finds them again.
#[derive(Clone, Copy)]
struct FreeBlocks {
    count: u64,
    first: u64,
}

/// A shard that this thread has locked.
pub(super) struct LockedShard<'a>(pub(super) FileShard<'a>);

impl LockedShard<'_> {
    /// True if a bucket has not changed since a reader looked.
    pub(super) fn is_unchanged(&self, bucket: usize, look: Look) -> bool {
        self.0.words.load(self.0.bucket_at(bucket)) == look.bucket
    }

    pub(super) fn read(&self, bucket: usize, name: RecordName, record: &mut Record) -> Result<bool, Damaged> {
        let place = self.0.find(bucket, self.0.words.load(self.0.bucket_at(bucket)), name)?;
        place.map_or(Ok(false), |place| self.0.read(place.block, record).map(|()| true))
    }

    /// True if a record could be stored in an empty shard.
    pub(super) fn can_have(&self, record: &Record) -> bool {
        record.blocks() <= self.0.blocks && record.bytes.len() <= MAX_BYTES
    }

    /// True if there is room for a record, with at most `max_keys` keys.
    pub(super) fn has_room(&self, bucket: usize, record: &Record, max_keys: usize) -> Result<bool, Damaged> {
        let has_room = |(free, _): (u64, u64), (_, used): (u64, u64)| {
            free + (self.0.blocks as u64).saturating_sub(used) >= record.blocks() as u64
        };
        let (free, counts) = (self.0.raw_head(FREE), self.0.raw_head(COUNTS));
        if has_room(free, counts) && (counts.0 as usize) < max_keys {
            return Ok(true);
        }
        // The numbers are checked now, so that no record is removed because of a damaged one.
        let (free, counts) = (self.0.head(FREE)?, self.0.head(COUNTS)?);
        if !has_room(free, counts) {
            return Ok(false);
        }
        if (counts.0 as usize) < max_keys {
            return Ok(true);
        }
        let state = self.0.words.load(self.0.bucket_at(bucket));
        Ok(self.0.find(bucket, state, record.name)?.is_some())
    }

    /// The blocks that are free.
    fn free_blocks(&self) -> Result<FreeBlocks, Damaged> {
        let (count, first) = self.0.head(FREE)?;
        Ok(FreeBlocks { count, first })
    }

    fn take_block(&self, free: &mut FreeBlocks) -> Result<u32, Damaged> {
        let shard = &self.0;
        let Some(block) = some(free.first as u32) else {
            let (keys, used) = shard.head(COUNTS)?;
            if used >= shard.blocks as u64 {
                return Err(Damaged);
            }
            shard.set_head(COUNTS, keys, used + 1);
            return Ok(used as u32 + 1);
        };
        let next = shard.next(block)?.unwrap_or(0).into();
        *free = FreeBlocks { count: free.count.checked_sub(1).ok_or(Damaged)?, first: next };
        Ok(block)
    }

    /// Counts a record more or less.
    fn count(&self, change: impl FnOnce(u64) -> u64) -> Result<(), Damaged> {
        let (keys, used) = self.0.head(COUNTS)?;
        self.0.set_head(COUNTS, change(keys), used);
        Ok(())
    }

    /// Frees the blocks of a record that no chain has any more: `block`, and those from `next` on.
    fn free(&self, block: u32, mut next: Option<u32>, free: &mut FreeBlocks) -> Result<(), Damaged> {
        let shard = &self.0;
        // Readers that see the following writes see the change of the bucket too.
        fence(Ordering::Release);
        let mut block = block;
        for _ in 0..shard.blocks {
            shard.set_next(block, free.first)?;
            *free = FreeBlocks { count: free.count + 1, first: block.into() };
            let Some(other) = next else {
                shard.set_head(FREE, free.count, free.first);
                return Ok(());
            };
            (block, next) = (other, shard.next(other)?);
        }
        Err(Damaged)
    }

    /// Writes a record into free blocks. Returns its first block.
    fn prepare(&self, record: &Record, link: Option<u32>, free: &mut FreeBlocks) -> Result<u32, Damaged> {
        let shard = &self.0;
        fence(Ordering::Release);
        let first = self.take_block(free)?;
        let lengths = lengths_of(record);
        let (expires, denies) = (record.expires_at.min(MOMENT), record.denies_until.min(MOMENT));
        let mut check = Check::of(expires, denies, lengths, record.name);
        let mut chunks = record.bytes.get(FIRST_BYTES..).unwrap_or_default().chunks(8).map(number_of);
        let (mut block, mut from) = (first, RECORD_HEAD);
        let mut left = record.blocks();
        loop {
            let at = shard.block_at(block)?;
            for index in from..BLOCK {
                let Some(number) = chunks.next() else { break };
                check.add(number);
                shard.words.store(at + index, number);
            }
            left -= 1;
            let next = if left > 0 { self.take_block(free)? } else { 0 };
            if block == first {
                shard.set_links(first, record.name, next.into(), link.unwrap_or(0).into())?;
            } else {
                shard.set_next(block, next.into())?;
            }
            if left == 0 {
                break;
            }
            (block, from) = (next, 1);
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

    /// Stores a record in place of the earlier one of its key. There has to be room for it.
    pub(super) fn write(&self, bucket: usize, record: &Record) -> Result<(), Damaged> {
        let shard = &self.0;
        let at = shard.bucket_at(bucket);
        let before = shard.words.load(at);
        let known = shard.find(bucket, before, record.name)?;
        let mut free = self.free_blocks()?;
        match known {
            Some(RecordPlace { block, before: None }) => {
                let (link, next) = shard.links(block)?;
                let first = self.prepare(record, link, &mut free)?;
                self.publish(at, before, Some(first))?;
                self.free(block, next, &mut free)
            }
            // Goes in front of the record that it replaces. That one is hidden then, until it is taken out.
            Some(RecordPlace { block, before: Some(earlier) }) => {
                let first = self.prepare(record, shard.first(bucket, before)?, &mut free)?;
                let published = self.publish(at, before, Some(first))?;
                self.unlink(at, published, Some(first), block, earlier, &mut free)
            }
            None => {
                let first = self.prepare(record, shard.first(bucket, before)?, &mut free)?;
                self.publish(at, before, Some(first))?;
                shard.set_head(FREE, free.count, free.first);
                self.count(|keys| keys + 1)
            }
        }
    }

    fn publish(&self, at: usize, before: u64, first: Option<u32>) -> Result<u64, Damaged> {
        let bucket = changed(at, before, first);
        // Only the holder of the lock writes here.
        if self.0.words.publish(at, before, bucket) { Ok(bucket) } else { Err(Damaged) }
    }

    /// Takes out a record that has another one before it.
    fn unlink(
        &self,
        at: usize,
        state: u64,
        first: Option<u32>,
        block: u32,
        earlier: u32,
        free: &mut FreeBlocks,
    ) -> Result<(), Damaged> {
        let shard = &self.0;
        let ((link, own_next), (_, next)) = (shard.links(block)?, shard.links(earlier)?);
        let name = shard.name(shard.block_at(earlier)?);
        // A reader that sees the shorter chain sees too that the bucket has changed since.
        fence(Ordering::Release);
        shard.set_links(earlier, name, next.unwrap_or(0).into(), link.unwrap_or(0).into())?;
        self.publish(at, state, first)?;
        self.free(block, own_next, free)
    }

    fn remove_at(&self, bucket: usize, RecordPlace { block, before }: RecordPlace) -> Result<(), Damaged> {
        let shard = &self.0;
        let at = shard.bucket_at(bucket);
        let (state, mut free) = (shard.words.load(at), self.free_blocks()?);
        match before {
            None => {
                let (link, next) = shard.links(block)?;
                self.publish(at, state, link)?;
                self.free(block, next, &mut free)?;
            }
            Some(earlier) => self.unlink(at, state, shard.first(bucket, state)?, block, earlier, &mut free)?,
        }
        self.count(|keys| keys.saturating_sub(1))
    }

    /// Removes the record of a key, if there is one.
    pub(super) fn remove(&self, bucket: usize, name: RecordName) -> Result<(), Damaged> {
        let place = self.0.find(bucket, self.0.words.load(self.0.bucket_at(bucket)), name)?;
        place.map_or(Ok(()), |place| self.remove_at(bucket, place))
    }

    /// Visits the records of a bucket until `visit` has found one. The number of blocks bounds the walk, even if links
    /// are damaged.
    fn walk<T>(
        &self,
        bucket: usize,
        mut visit: impl FnMut(RecordPlace) -> Result<Visited<T>, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        let (mut next, mut before) = (self.0.first_now(bucket)?, None);
        for _ in 0..=self.0.blocks {
            let Some(block) = next else { return Ok(None) };
            let link = self.0.links(block)?.0;
            match visit(RecordPlace { block, before })? {
                Visited::Stays => before = next,
                Visited::Removed => {}
                Visited::Found(found) => return Ok(Some(found)),
            }
            next = link;
        }
        Err(Damaged)
    }

    /// Removes every record with a name for which `is_wanted` returns true.
    pub(super) fn remove_all(&self, is_wanted: impl Fn(RecordName) -> bool) -> Result<(), Damaged> {
        for bucket in 0..self.0.buckets {
            self.walk::<()>(bucket, |place| {
                if is_wanted(self.0.name(self.0.block_at(place.block)?)) {
                    self.remove_at(bucket, place)?;
                    return Ok(Visited::Removed);
                }
                Ok(Visited::Stays)
            })?;
        }
        Ok(())
    }

    /// Removes a record that was chosen by its moments. It reads the record first, because the check covers the
    /// moments: a damaged record must not pass for an old one.
    fn remove_chosen(&self, bucket: usize, place: RecordPlace) -> Result<(), Damaged> {
        self.0.read(place.block, &mut Record::default())?;
        self.remove_at(bucket, place)
    }

    /// Removes one record to make room, an expired one if it finds one. It spares the other records of the bucket
    /// `spared`. Returns the sort of the removed record, or `None` if there was none to remove.
    pub(super) fn make_room(&self, now: u64, spared: usize) -> Result<Option<Removed>, Damaged> {
        let shard = &self.0;
        let mut hand = shard.head(HAND)?.1 as usize % shard.buckets.max(1);
        let mut victim: Option<(usize, RecordPlace, u64)> = None;
        let mut denial: Option<(usize, RecordPlace, u64)> = None;
        let (mut live, mut denying) = (0, 0);
        for _ in 0..shard.buckets {
            hand = (hand + 1) % shard.buckets;
            let expired = self.walk(hand, |place| {
                let at = shard.block_at(place.block)?;
                let (expires, denies) = (moment(shard.words.load(at + 1)), moment(shard.words.load(at + 2)));
                if expires <= now {
                    return Ok(Visited::Found(place));
                }
                if hand == spared {
                    // The call about this bucket has read it, and relies on that.
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
                Ok(Visited::Stays)
            })?;
            if let Some(place) = expired {
                self.remove_chosen(hand, place)?;
                shard.set_head(HAND, 0, hand as u64);
                return Ok(Some(Removed::Expired));
            }
            if live >= CANDIDATES || live > 0 && live + denying >= CANDIDATES || denying >= DENYING_CANDIDATES {
                break;
            }
        }
        shard.set_head(HAND, 0, hand as u64);
        let (removed, found) = match (victim, denial) {
            (Some(victim), _) => (Removed::Live, victim),
            (None, Some(denial)) => (Removed::Denial, denial),
            (None, None) => return Ok(None),
        };
        self.remove_chosen(found.0, found.1)?;
        Ok(Some(removed))
    }
}

/// The result of a visit to a record.
enum Visited<T> {
    Stays,
    Removed,
    Found(T),
}

/// The number of a bucket after a change of its chain. It has another version, whatever the last one was.
pub(super) fn changed(at: usize, state: u64, first: Option<u32>) -> u64 {
    Salt::at(at).seal_both((state >> HALF_BITS).wrapping_add(1), first.unwrap_or(0).into())
}
