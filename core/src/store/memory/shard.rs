//! A part of the store: a vector of usages, a table of their indexes, and a cursor that finds usages to remove.

use hashbrown::HashTable;

use super::usage::Usage;
use crate::store::request::Entry;

/// Usages compared to find the one to remove from a full shard.
const CANDIDATES: usize = 16;

#[derive(Default)]
pub(super) struct MemoryShard {
    /// Indexes into `usages`, by hash.
    table: HashTable<u32>,
    pub(super) usages: Vec<Usage>,
    /// Where the search for usages to remove goes on.
    cursor: usize,
}

impl MemoryShard {
    #[inline]
    pub(super) fn find(&self, hash: u64, entry: &Entry<'_>) -> Option<usize> {
        self.table.find(hash, |index| self.usages[*index as usize].is_of(entry)).map(|index| *index as usize)
    }

    /// Adds a usage. First it removes expired ones among the next `swept`, and one more when the shard is full.
    pub(super) fn insert(&mut self, usage: Usage, now: u64, most: usize, swept: usize) {
        for _ in 0..swept {
            let Some(at) = self.advance() else { break };
            if !self.usages[at].is_live(now) {
                self.remove(at);
            }
        }
        if self.usages.len() >= most
            && let Some(victim) = self.victim(now)
        {
            self.remove(victim);
        }
        let index = self.usages.len();
        let usages = &self.usages;
        self.table.insert_unique(usage.hash, index as u32, |index| usages[*index as usize].hash);
        self.usages.push(usage);
    }

    /// Moves the cursor; returns where it is.
    fn advance(&mut self) -> Option<usize> {
        if self.usages.is_empty() {
            return None;
        }
        self.cursor = if self.cursor + 1 < self.usages.len() { self.cursor + 1 } else { 0 };
        Some(self.cursor)
    }

    /// The usage to remove among the next few: an expired one, else the first to expire of those that are not denying.
    fn victim(&mut self, now: u64) -> Option<usize> {
        let mut victim: Option<usize> = None;
        for _ in 0..CANDIDATES.min(self.usages.len()) {
            let at = self.advance()?;
            let usage = &self.usages[at];
            if !usage.is_live(now) {
                return Some(at);
            }
            if !usage.is_denying(now) && victim.is_none_or(|victim| usage.expires_at < self.usages[victim].expires_at) {
                victim = Some(at);
            }
        }
        victim
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
