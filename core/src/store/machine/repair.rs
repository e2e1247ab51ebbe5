//! Makes a shard whole, and checks that it is.

use std::iter::Sum;

use super::locked_shard::{LockedShard, changed};
use super::record::{Damaged, Record, RecordName};
use super::shard::{COUNTS, FREE, HAND, some};
use super::sync::{Ordering, fence};

/// The losses of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Losses {
    /// Damaged numbers and records.
    pub(super) damaged: usize,
    /// Records that are gone, as far as their number is known.
    pub(super) records: usize,
}

impl Sum for Losses {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            damaged: sum.damaged + one.damaged,
            records: sum.records + one.records,
        })
    }
}

impl LockedShard<'_> {
    /// Makes the shard whole after a process ended while it held the lock, after a restart of the machine, or after
    /// damage. Reachable records stay, and every other block is free.
    pub(super) fn repair(&self) -> Losses {
        let shard = &self.0;
        let counted = shard.head(COUNTS);
        let mut damaged = [counted, shard.head(FREE), shard.head(HAND)].iter().filter(|head| head.is_err()).count();
        let (mut taken, mut passed) = (vec![false; shard.blocks], vec![false; shard.blocks]);
        let (mut keys, mut unreadable) = (0, 0);
        let mut record = Record::default();
        for bucket in 0..shard.buckets {
            let at = shard.bucket_at(bucket);
            let state = shard.words.load(at);
            let first = shard.first(bucket, state);
            if first == Ok(None) {
                continue;
            }
            let mut seen: Vec<(u32, RecordName)> = Vec::new();
            let mut next = first;
            // Each step passes a block that no other has passed, or ends the walk, even if links are damaged.
            let cut = loop {
                let block = match next {
                    Ok(Some(block)) => block,
                    Ok(None) => break false,
                    Err(Damaged) => break true,
                };
                let is_taken = |block: &u32| taken.get(*block as usize - 1).is_none_or(|taken| *taken);
                if is_taken(&block) || std::mem::replace(&mut passed[block as usize - 1], true) {
                    break true;
                }
                let is_readable = shard.read(block, &mut record).is_ok();
                match self.blocks_of(block).filter(|blocks| is_readable && !blocks.iter().any(is_taken)) {
                    // An earlier record of the same name hides this one.
                    Some(_) if seen.iter().any(|(_, known)| *known == record.name) => {}
                    Some(blocks) => {
                        blocks.iter().for_each(|block| taken[*block as usize - 1] = true);
                        seen.push((block, record.name));
                    }
                    None => unreadable += 1,
                }
                next = shard.links(block).map(|(link, _)| link);
            };
            damaged += usize::from(cut);
            keys += seen.len();
            // From the last record to the first, so that each link leads to a record that is whole already.
            let mut link = None;
            for (block, name) in seen.into_iter().rev() {
                if let Ok((_, next)) = shard.links(block) {
                    let _ = shard.set_links(block, name, next.unwrap_or(0).into(), link.unwrap_or(0).into());
                    link = Some(block);
                }
            }
            shard.words.release(at, changed(at, state, link));
        }
        fence(Ordering::Release);
        let (mut free, mut count) = (0, 0);
        for index in (0..shard.blocks).rev().filter(|index| !taken[*index]) {
            let _ = shard.set_next(index as u32 + 1, free);
            (free, count) = (index as u64 + 1, count + 1);
        }
        shard.set_head(FREE, count, free);
        shard.set_head(COUNTS, keys as u64, shard.blocks as u64);
        shard.set_head(HAND, 0, 0);
        let damaged = damaged + unreadable;
        // A process that has ended may have left the count wrong by one.
        let missing = counted.map_or(0, |(counted, _)| (counted as usize).saturating_sub(keys));
        Losses { damaged, records: if damaged > 0 { unreadable.max(missing) } else { 0 } }
    }

    /// Checks that every used block is in one record or free. Returns how many records there are.
    pub(super) fn examine(&self) -> Result<usize, Damaged> {
        let shard = &self.0;
        let mut taken = vec![false; shard.blocks];
        let mut take = |block: u32| match taken.get_mut(block as usize - 1) {
            Some(known) if !*known => {
                *known = true;
                Ok(())
            }
            _ => Err(Damaged),
        };
        let (mut keys, mut record) = (0, Record::default());
        for bucket in 0..shard.buckets {
            let mut next = shard.first_now(bucket)?;
            while let Some(block) = next {
                shard.read(block, &mut record)?;
                self.blocks_of(block).ok_or(Damaged)?.into_iter().try_for_each(&mut take)?;
                next = shard.links(block)?.0;
                keys += 1;
            }
        }
        let ((free_count, free), (known_keys, known_used)) = (shard.head(FREE)?, shard.head(COUNTS)?);
        shard.head(HAND)?;
        let (mut free, mut count) = (some(free as u32), 0);
        while let Some(block) = free {
            take(block)?;
            free = shard.next(block)?;
            count += 1;
        }
        let used = taken.iter().filter(|taken| **taken).count() as u64;
        let is_whole = count == free_count && used == known_used && keys as u64 == known_keys;
        if is_whole { Ok(keys) } else { Err(Damaged) }
    }

    /// The blocks of a record.
    fn blocks_of(&self, block: u32) -> Option<Vec<u32>> {
        let (mut blocks, mut next) = (vec![block], self.0.links(block).ok()?.1);
        while let Some(block) = next {
            if blocks.len() > self.0.blocks {
                return None;
            }
            next = self.0.next(block).ok()?;
            blocks.push(block);
        }
        Some(blocks)
    }
}
