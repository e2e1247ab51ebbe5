//! A part of the store: usages found by their hash, and how many bytes they take.

use foldhash::fast::RandomState;

use super::kept_usage::KeptUsage;
use crate::plan::Plan;
use crate::store::usage::Usage;
use crate::tables::hash_slab::HashSlab;
use crate::tables::table_key::TableKeyRef;

/// Usages compared to find the one to remove.
const CANDIDATES: usize = 16;
/// Usages searched for one that is not denying, before a denial is forgotten.
const DENYING_CANDIDATES: usize = 256;

pub(super) struct MemoryShard {
    usages: HashSlab<KeptUsage>,
    /// The bytes of its usages.
    pub(super) bytes: usize,
    /// The bytes of this shard that the store has counted.
    pub(super) counted: usize,
    /// The last moment of a call by the clock of the store.
    latest: u64,
}

/// The sort of usage that was removed to make room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    Usage,
    /// A usage that was denying its key.
    Denial,
}

impl MemoryShard {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { usages: HashSlab::new(hasher), bytes: 0, counted: 0, latest: 0 }
    }

    /// The moment of a call that read the clock of the store. Another call may have read it later and been decided before,
    /// and no call may charge a window that another one has left.
    #[inline(always)]
    pub(super) fn moment(&mut self, now: u64) -> u64 {
        self.latest = self.latest.max(now);
        self.latest
    }

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

    /// Adds a usage. Expired ones among the next `swept` are removed, and one usage more if the shard is full. The new
    /// usage takes the place of the last one that is removed.
    pub(super) fn insert(&mut self, hash: u64, kept: KeptUsage, now: u64, most: usize, swept: usize) {
        self.sweep(now, swept.saturating_sub(1));
        // A shard that denials made larger has one more to give back.
        if self.len() > most
            && let Some(victim) = self.victim(now, None)
        {
            self.remove(victim);
        }
        let expired = if swept > 0 { self.next_expired(now) } else { None };
        let place = expired.or_else(|| if self.len() >= most { self.victim(now, None) } else { None });
        self.bytes += kept.bytes();
        match place {
            Some(at) => self.bytes -= self.usages.replace(at, hash, kept).bytes(),
            None => self.usages.insert(hash, kept),
        }
    }

    /// Removes expired usages among the next `swept`. Returns how many.
    pub(super) fn sweep(&mut self, now: u64, swept: usize) -> usize {
        let before = self.len();
        for _ in 0..swept.min(before) {
            if let Some(at) = self.next_expired(now) {
                self.remove(at);
            }
        }
        before - self.len()
    }

    /// Moves the cursor. Returns the usage there if it has expired.
    fn next_expired(&mut self, now: u64) -> Option<usize> {
        let at = self.usages.advance()?;
        (!self.usages.get(at).usage.is_live(now)).then_some(at)
    }

    /// Removes a usage to free its bytes, chosen by [`Self::victim`]. If all deny, the one with the denial that ends
    /// first goes. That of `spared`, which a call has just used, goes only if it is the last. `None` if there is none.
    pub(super) fn evict(&mut self, now: u64, spared: u64) -> Option<Evicted> {
        if let Some(victim) = self.victim(now, Some(spared)) {
            self.remove(victim);
            return Some(Evicted::Usage);
        }
        let mut soonest: Option<usize> = None;
        for _ in 0..DENYING_CANDIDATES.min(self.len()) {
            let at = self.usages.advance()?;
            let usage = &self.usages.get(at).usage;
            let is_denying = usage.is_denying(now);
            let sooner = |soonest: usize| usage.denial_ends() < self.usages.get(soonest).usage.denial_ends();
            if is_denying && !soonest.is_none_or(sooner) || self.usages.hash_at(at) == spared {
                continue;
            }
            if !is_denying {
                self.remove(at);
                return Some(Evicted::Usage);
            }
            soonest = Some(at);
        }
        let removed = self.len().checked_sub(1).map(|last| self.remove(soonest.unwrap_or(last)))?;
        Some(if removed.usage.is_denying(now) { Evicted::Denial } else { Evicted::Usage })
    }

    /// The usage to remove among the next few: an expired one, else the first to expire of those that are not denying.
    fn victim(&mut self, now: u64, spared: Option<u64>) -> Option<usize> {
        let mut victim: Option<usize> = None;
        for _ in 0..CANDIDATES.min(self.len()) {
            let at = self.usages.advance()?;
            let usage = &self.usages.get(at).usage;
            if !usage.is_live(now) {
                return Some(at);
            }
            let sooner = |victim: usize| usage.expires_at < self.usages.get(victim).usage.expires_at;
            let is_spared = || spared.is_some_and(|spared| self.usages.hash_at(at) == spared);
            if !usage.is_denying(now) && victim.is_none_or(sooner) && !is_spared() {
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
