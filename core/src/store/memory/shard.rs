//! A part of the store: usages found by their hash, and how many bytes they take.

use super::kept_usage::KeptUsage;
use crate::plan::Plan;
use crate::store::usage::Usage;
use crate::tables::hash_slab::HashSlab;
use crate::tables::table_key::TableKeyRef;

/// Usages compared to find the one to remove.
const CANDIDATES: usize = 16;
/// Usages looked at for one that is not denying, before a denial is forgotten.
const DENYING_CANDIDATES: usize = 256;

#[derive(Default)]
pub(super) struct MemoryShard {
    usages: HashSlab<KeptUsage>,
    /// The bytes of its usages …
    pub(super) bytes: usize,
    /// … and how many of them the store has counted.
    pub(super) counted: usize,
}

/// What was removed to make room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    Usage,
    /// A usage that was denying its key.
    Denial,
}

impl MemoryShard {
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, plan: &Plan, key: TableKeyRef<'_>) -> Option<usize> {
        self.usages.find(hash, |usage| usage.is_of(plan, key))
    }

    /// For a change that allocates nothing.
    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut Usage {
        &mut self.usages.get_mut(at).usage
    }

    /// Changes a usage.
    pub(super) fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Usage) -> R) -> R {
        let usage = &mut self.usages.get_mut(at).usage;
        let before = usage.heap_bytes();
        let result = change(usage);
        self.bytes = self.bytes + usage.heap_bytes() - before;
        result
    }

    /// Removes every usage.
    pub(super) fn clear(&mut self) {
        self.usages.clear();
        self.bytes = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.usages.len()
    }

    /// Adds a usage. First it removes expired ones among the next `swept`, and others when the shard is full.
    pub(super) fn insert(&mut self, kept: KeptUsage, now: u64, most: usize, swept: usize) {
        self.sweep(now, swept);
        if self.len() >= most {
            // A shard that denials made larger has one more to give back.
            let surplus = if self.len() > most { 2 } else { 1 };
            for _ in 0..surplus {
                if let Some(victim) = self.victim(now, kept.hash) {
                    self.remove(victim);
                }
            }
        }
        self.bytes += kept.bytes();
        self.usages.insert(kept);
    }

    /// Removes expired usages among the next so many; returns how many.
    pub(super) fn sweep(&mut self, now: u64, swept: usize) -> usize {
        let before = self.len();
        for _ in 0..swept.min(before) {
            match self.usages.advance() {
                Some(at) if !self.usages.get(at).usage.is_live(now) => drop(self.remove(at)),
                _ => {}
            }
        }
        before - self.len()
    }

    /// Removes a usage for the sake of its bytes: as [`Self::victim`], but when all are denying, then the one whose denial
    /// ends soonest; that of `spared`, which a call has just used, only when it is the last. `None` when there is none.
    pub(super) fn evict(&mut self, now: u64, spared: u64) -> Option<Evicted> {
        if let Some(victim) = self.victim(now, spared) {
            self.remove(victim);
            return Some(Evicted::Usage);
        }
        let mut soonest: Option<usize> = None;
        for _ in 0..DENYING_CANDIDATES.min(self.len()) {
            let at = self.usages.advance()?;
            let KeptUsage { hash, usage, .. } = self.usages.get(at);
            if *hash == spared {
                continue;
            }
            if !usage.is_denying(now) {
                self.remove(at);
                return Some(Evicted::Usage);
            }
            if soonest.is_none_or(|soonest| usage.denial_ends() < self.usages.get(soonest).usage.denial_ends()) {
                soonest = Some(at);
            }
        }
        let removed = self.len().checked_sub(1).map(|last| self.remove(soonest.unwrap_or(last)))?;
        Some(if removed.usage.is_denying(now) { Evicted::Denial } else { Evicted::Usage })
    }

    /// The usage to remove among the next few: an expired one, else the first to expire of those that are not denying.
    fn victim(&mut self, now: u64, spared: u64) -> Option<usize> {
        let mut victim: Option<usize> = None;
        for _ in 0..CANDIDATES.min(self.len()) {
            let at = self.usages.advance()?;
            let KeptUsage { hash, usage, .. } = self.usages.get(at);
            if !usage.is_live(now) {
                return Some(at);
            }
            let sooner = |victim: usize| usage.expires_at < self.usages.get(victim).usage.expires_at;
            if !usage.is_denying(now) && *hash != spared && victim.is_none_or(sooner) {
                victim = Some(at);
            }
        }
        victim
    }

    /// The bytes of its usages, measured anew.
    #[cfg(test)]
    pub(super) fn measured_bytes(&self) -> usize {
        (0..self.len()).map(|at| self.usages.get(at).bytes()).sum()
    }

    pub(super) fn remove(&mut self, at: usize) -> KeptUsage {
        let removed = self.usages.remove(at);
        self.bytes -= removed.bytes();
        removed
    }
}
