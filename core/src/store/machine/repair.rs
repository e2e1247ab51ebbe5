//! Makes a shard whole, and says whether it is.

use super::locked_shard::{LockedShard, changed};
use super::record::{Damaged, Record, RecordName};
use super::shard::{FREE, FREE_COUNT, KEYS, USED, some};
use super::sync::{Ordering, fence};

impl LockedShard<'_> {
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
            let mut seen: Vec<(u32, RecordName)> = Vec::new();
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
                if !seen.iter().any(|(_, known)| *known == record.name) {
                    blocks.iter().for_each(|block| taken[*block as usize - 1] = true);
                    seen.push((block, record.name));
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

    /// Whether every block is in one record or free: how many records there are.
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
            let mut next = some(shard.words.load(shard.bucket_at(bucket)) as u32);
            while let Some(block) = next {
                shard.read(block, &mut record)?;
                self.blocks_of(block).ok_or(Damaged)?.into_iter().try_for_each(&mut take)?;
                next = shard.links(block)?.0;
                keys += 1;
            }
        }
        let (mut free, mut count) = (some(shard.head(FREE) as u32), 0);
        while let Some(block) = free {
            take(block)?;
            free = shard.links(block)?.1;
            count += 1;
        }
        let used = taken.iter().filter(|taken| **taken).count() as u64;
        let is_whole = count == shard.head(FREE_COUNT) && used == shard.head(USED) && keys as u64 == shard.head(KEYS);
        if is_whole { Ok(keys) } else { Err(Damaged) }
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
