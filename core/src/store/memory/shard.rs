//! A part of the store: a slab of usages, a table of their numbers, and the hand that makes room.

use hashbrown::HashTable;

use super::usage::Usage;
use crate::store::request::Entry;

/// Entries looked at for the one that matters least, when a shard is full.
const WEIGHED: usize = 16;

#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    pub(super) usages: Vec<Usage>,
    hand: usize,
}

impl Shard {
    #[inline]
    pub(super) fn find(&self, hash: u64, entry: &Entry<'_>) -> Option<usize> {
        self.table.find(hash, |index| self.usages[*index as usize].is_of(entry)).map(|index| *index as usize)
    }

    /// Stores a newcomer, making room for it first.
    pub(super) fn insert(&mut self, usage: Usage, now: u64, most: usize, swept: usize) {
        for _ in 0..swept {
            let Some(at) = self.turn() else { break };
            if !self.usages[at].matters(now) {
                self.remove(at);
            }
        }
        if self.usages.len() >= most
            && let Some(least) = self.least(now)
        {
            self.remove(least);
        }
        let index = self.usages.len();
        let usages = &self.usages;
        self.table.insert_unique(usage.hash, index as u32, |index| usages[*index as usize].hash);
        self.usages.push(usage);
    }

    /// The entry under the hand, which moves on.
    pub(super) fn turn(&mut self) -> Option<usize> {
        if self.usages.is_empty() {
            return None;
        }
        self.hand = if self.hand + 1 < self.usages.len() { self.hand + 1 } else { 0 };
        Some(self.hand)
    }

    /// The entry that matters least among the next few: an expired one, else the first to expire of those that deny
    /// nobody.
    pub(super) fn least(&mut self, now: u64) -> Option<usize> {
        let mut least: Option<usize> = None;
        for _ in 0..WEIGHED.min(self.usages.len()) {
            let at = self.turn()?;
            let usage = &self.usages[at];
            if !usage.matters(now) {
                return Some(at);
            }
            if !usage.denies(now) && least.is_none_or(|least| usage.ends < self.usages[least].ends) {
                least = Some(at);
            }
        }
        least
    }

    pub(super) fn remove(&mut self, at: usize) -> Usage {
        let hash = self.usages[at].hash;
        if let Ok(found) = self.table.find_entry(hash, |index| *index as usize == at) {
            found.remove();
        }
        let removed = self.usages.swap_remove(at);
        if let Some(moved) = self.usages.get(at) {
            let from = self.usages.len();
            if let Some(index) = self.table.find_mut(moved.hash, |index| *index as usize == from) {
                *index = at as u32;
            }
        }
        removed
    }
}
