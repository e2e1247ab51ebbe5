//! The newest attempts of a key.

use std::collections::VecDeque;

use super::Usage;
use crate::store::request::{Attempt, Entry, Operation};
use crate::tables::allocation::allocated;

#[derive(Default)]
pub(super) struct Journal {
    /// The oldest first.
    pub(super) attempts: VecDeque<Attempt>,
    /// The bytes of their metadata.
    meta_bytes: usize,
    pub(super) expires_at: u64,
}

fn meta_bytes(attempt: &Attempt) -> usize {
    attempt.meta.as_ref().map_or(0, |meta| allocated(meta.capacity()))
}

impl Journal {
    /// The bytes that it has allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.attempts.capacity() * size_of::<Attempt>()) + self.meta_bytes
    }

    pub(super) fn push(&mut self, attempt: Attempt) {
        self.meta_bytes += meta_bytes(&attempt);
        self.attempts.push_back(attempt);
    }

    fn forget(&mut self, attempt: &Attempt) {
        if let Some(at) = self.attempts.iter().rposition(|other| other == attempt) {
            self.attempts.remove(at);
            self.meta_bytes -= meta_bytes(attempt);
        }
    }

    /// The attempts that are remembered at `now`, the newest first. Each is remembered for `life` microseconds.
    pub(super) fn newest(&self, now: u64, life: u64) -> Vec<Attempt> {
        self.attempts.iter().rev().filter(|attempt| attempt.at + life > now).cloned().collect()
    }
}

/// True if the journal notes the entry, whatever its answer is.
#[cfg(feature = "redis")]
pub(in crate::store) fn is_noted(entry: &Entry<'_>) -> bool {
    let is_noted = entry.operation.is_check() || matches!(entry.operation, Operation::NoteDenial { .. });
    entry.plan.policy.options().journal > 0 && is_noted
}

impl Usage {
    /// Forgets the oldest attempts until at least so many bytes of their metadata are gone. Returns true if there were any.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn forget_attempts(&mut self, mut bytes: usize) -> bool {
        let journal = self.rare.as_mut().and_then(|rare| rare.journal.as_mut());
        let Some(journal) = journal.filter(|journal| !journal.attempts.is_empty()) else { return false };
        while bytes > 0
            && let Some(attempt) = journal.attempts.pop_front()
        {
            journal.meta_bytes -= meta_bytes(&attempt);
            bytes = bytes.saturating_sub(attempt.meta.map_or(0, |meta| meta.len()));
        }
        true
    }

    /// Adds a check or a charge to the journal, if its policy keeps one.
    pub(in crate::store) fn record_attempt(&mut self, entry: &Entry<'_>, now: u64, allowed: bool) {
        let most = entry.plan.policy.options().journal as usize;
        if most == 0 {
            return;
        }
        let journal = self.rare.get_or_insert_default().journal.get_or_insert_default();
        let attempt = Attempt {
            at: now,
            allowed,
            cost: entry.operation.named_cost(),
            meta: entry.operation.metadata().map(<[u8]>::to_vec),
        };
        if let Operation::Turn { instead_of: at @ 1.., .. } = entry.operation {
            journal.forget(&Attempt { at, allowed: true, ..attempt.clone() });
        }
        journal.push(attempt);
        let surplus = journal.attempts.len().saturating_sub(most);
        let dropped: usize = journal.attempts.drain(..surplus).map(|attempt| meta_bytes(&attempt)).sum();
        journal.meta_bytes -= dropped;
        journal.expires_at = now + entry.plan.journal_life();
    }
}
