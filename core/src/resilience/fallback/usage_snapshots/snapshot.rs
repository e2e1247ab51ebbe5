//! The last known usage of one policy and key.

use std::sync::Arc;

use super::{ResumedUsage, STORE};
use crate::algorithm::State;
use crate::plan::{Plan, StoredLimit};
use crate::resilience::key_table::{KeyEntry, KnownKey};
use crate::store::request::{Answer, Entry, Operation, States};
use crate::store::usage::Resumed;
use crate::tables::allocation::spilled;
use crate::tables::table_key::TableKeyRef;

/// The stored usage of a key, as it was last asked for. Moments are in the time of the store, unless noted otherwise.
pub(super) struct Snapshot {
    known: KnownKey,
    states: States,
    rest: Resumed,
    /// The time of the answer that showed the usage.
    seen: u64,
    /// How far the store's time is ahead of this process's. A reply takes a while, so the store is ahead by that or
    /// more, and nothing ends earlier than in the store.
    pub(super) ahead: i64,
    /// The time of this process until which it is of use.
    until: u64,
    /// The outage that enforces the key locally. 0 if the last answer came from the store.
    pub(super) outage: u64,
}

impl Snapshot {
    pub(super) fn new(
        plan: &Arc<Plan>,
        (key, hash): (TableKeyRef<'_>, u64),
        answer: &Answer,
        states: States,
        now: u64,
        outage: u64,
    ) -> Self {
        let ahead = answer.now.wrapping_sub(now) as i64;
        let (known, until) = (KnownKey::new(plan, key, hash), until(plan, answer, ahead));
        let (rest, seen) = (rest_of(answer), answer.now);
        let mut new = Self { known, states, rest, seen, ahead, until, outage };
        new.measure();
        new
    }

    /// Measures its allocated bytes.
    #[inline]
    fn measure(&mut self) {
        self.known.measure(spilled(&self.states) + self.states.iter().map(State::heap_bytes).sum::<usize>());
    }

    pub(super) const fn is_unused(&self, now: u64) -> bool {
        self.until <= now
    }

    /// Takes over the usage that an answer shows.
    #[inline]
    pub(super) fn update(&mut self, entry: &Entry<'_>, answer: &Answer, states: States, now: u64, outage: u64) {
        let ahead = answer.now.wrapping_sub(now) as i64;
        // Answers may overtake each other.
        let may_be_old = answer.may_be_old || answer.now < self.seen;
        if may_be_old && self.outage == outage {
            return self.keep_more(entry, answer, states, ahead);
        }
        if may_be_old && outage == STORE {
            return;
        }
        if Arc::ptr_eq(&self.known.plan, entry.plan) {
            self.states = states;
        } else if !self.is_still_stored(entry, answer, &states, outage) {
            (self.known.plan, self.states) = (Arc::clone(entry.plan), states);
        }
        (self.seen, self.ahead, self.outage) = (answer.now, ahead, outage);
        (self.rest, self.until) = (rest_of(answer), until(entry.plan, answer, ahead));
        self.measure();
    }

    /// True if another version of the policy has read this usage and has not written it. Then it is still stored as the
    /// older version wrote it.
    #[cold]
    fn is_still_stored(&self, entry: &Entry<'_>, answer: &Answer, states: &States, outage: u64) -> bool {
        let wrote = match entry.operation {
            Operation::Peek { .. } => false,
            ref operation if operation.is_check() => answer.applied || entry.plan.denial_writes,
            _ => true,
        };
        let converted = || -> States {
            let stored = self.known.plan.format.tags.iter().zip(&self.states);
            let mut stored = stored.map(|(tag, state)| StoredLimit::new(tag, state)).collect();
            entry.plan.converted(&mut stored, answer.now)
        };
        !wrote && self.outage == outage && converted() == *states
    }

    /// Keeps the larger usage of each limit, for an answer that may be older than the snapshot.
    #[cold]
    fn keep_more(&mut self, entry: &Entry<'_>, answer: &Answer, states: States, ahead: i64) {
        if self.known.plan.format.tags != entry.plan.format.tags {
            return;
        }
        let at = self.seen.max(answer.now);
        for ((rule, kept), state) in self.known.plan.rules.iter().zip(&mut self.states).zip(states) {
            let size = |state: &State| (rule.used(state, at), rule.ends(state));
            if size(&state) >= size(kept) {
                *kept = state;
            }
        }
        if answer.blocked_until > self.rest.blocked_until {
            (self.rest.blocked_until, self.rest.block_level) = (answer.blocked_until, answer.block_level());
        }
        self.ahead = self.ahead.min(ahead);
        self.until = self.until.max(until(entry.plan, answer, ahead));
        self.measure();
    }

    /// The time of the store.
    pub(super) const fn store_time(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.ahead)
    }

    /// The usage that the key goes on from.
    pub(super) fn resumed(&self, now: u64) -> ResumedUsage<'_> {
        let (states, now) = (self.states.clone(), self.store_time(now));
        ResumedUsage { plan: &self.known.plan, states, rest: self.rest, now }
    }
}

/// The parts of an answer beside the states.
fn rest_of(answer: &Answer) -> Resumed {
    Resumed { blocked_until: answer.blocked_until, block_level: answer.block_level(), traces: answer.traces() }
}

/// The time of this process until which the usage of an answer is of use.
fn until(plan: &Plan, answer: &Answer, ahead: i64) -> u64 {
    let level_ends = answer.block_level().ends(answer.blocked_until, plan);
    let ends = answer.blocked_until.max(answer.traces().until).max(level_ends);
    let until = answer.views.iter().fold(ends, |until, view| until.max(view.resets_at));
    until.saturating_add_signed(ahead.saturating_neg())
}

impl KeyEntry for Snapshot {
    #[inline]
    fn known(&self) -> &KnownKey {
        &self.known
    }

    fn until(&self) -> u64 {
        self.until + self.known.plan.grace
    }
}
