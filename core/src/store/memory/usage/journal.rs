//! The newest attempts of a key.

use std::collections::VecDeque;

use super::Usage;
use crate::store::request::{Attempt, Entry, Operation};

#[derive(Default)]
pub(super) struct Journal {
    /// The oldest first.
    attempts: VecDeque<Attempt>,
    pub(super) expires_at: u64,
}

impl Journal {
    /// The attempts that are remembered at `now`, the newest first. Each is remembered for `life` microseconds.
    pub(super) fn newest(&self, now: u64, life: u64) -> Vec<Attempt> {
        self.attempts.iter().rev().filter(|attempt| attempt.at + life > now).cloned().collect()
    }
}

impl Usage {
    /// Adds a check to the journal, if its policy keeps one.
    pub(in crate::store::memory) fn record_attempt(&mut self, entry: &Entry<'_>, now: u64, allowed: bool) {
        let most = entry.plan.policy.options().journal as usize;
        let Operation::Check { cost, meta, .. } = &entry.operation else { return };
        if most == 0 {
            return;
        }
        let journal = self.rare.get_or_insert_default().journal.get_or_insert_default();
        journal.attempts.push_back(Attempt {
            at: now,
            allowed,
            cost: *cost,
            meta: meta.as_deref().map(<[u8]>::to_vec),
        });
        let surplus = journal.attempts.len().saturating_sub(most);
        journal.attempts.drain(..surplus);
        journal.expires_at = now + entry.plan.journal_life();
    }
}
