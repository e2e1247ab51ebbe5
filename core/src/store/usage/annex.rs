//! The parts of a key beside the states of its limits. Few keys have any.

use super::Usage;
use super::waiting_line::InLine;
use crate::algorithm::{LearnedLimits, MAX_SAFE_INTEGER, Said, Traces};
use crate::plan::{Amount, BlockLevel, Plan, StoredLimit};
#[cfg(feature = "redis")]
use crate::store::request::{Answer, ChangedOverride, Operation};
use crate::store::request::{Entry, OverrideChange, RareAnswer, StoredOverride};
use crate::tables::allocation::allocated;

/// The rare part of a usage. docs/adr/0028 has the meaning of each part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::store) struct UsageAnnex {
    pub(super) blocked_until: u64,
    pub(super) block_level: BlockLevel,
    pub(super) traces: Traces,
    /// The generation of its leases. 0 before the first one.
    pub(super) generation: u64,
    /// The moment of the last turn. 0 if none is to come.
    pub(super) turns_until: u64,
    /// Limits that another version of the policy counts.
    pub(super) others: Vec<StoredLimit>,
    /// The callers that wait for the key, also in other processes. Only stores that processes share have them.
    pub(super) line: Vec<InLine>,
    /// The override of the key. Only stores without a table of overrides have it here.
    pub(super) stored_override: Option<Box<StoredOverride>>,
    /// The learned limits of the key.
    pub(super) learned: Option<Box<LearnedLimits>>,
    /// Sections of a later release, as they were read.
    pub(super) unknown: Vec<u8>,
}

impl UsageAnnex {
    /// The bytes that it has allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        let learned = |learned: &LearnedLimits| allocated(size_of::<LearnedLimits>()) + allocated(learned.heap_bytes());
        StoredLimit::heap_bytes(&self.others)
            + allocated(self.line.capacity() * size_of::<InLine>())
            + self.learned.as_deref().map_or(0, learned)
    }

    /// When the block and the limits of other versions end.
    pub(super) fn ends(&self) -> u64 {
        self.others.iter().map(|other| other.until).fold(self.blocked_until, u64::max)
    }
}

impl Usage {
    pub(super) fn annex(&self) -> Option<&UsageAnnex> {
        self.rare.as_ref().map(|rare| &rare.annex)
    }

    pub(super) fn change_annex<R>(&mut self, change: impl FnOnce(&mut UsageAnnex) -> R) -> R {
        let rare = self.rare.get_or_insert_default();
        let result = change(&mut rare.annex);
        if rare.annex == UsageAnnex::default() && rare.journal.is_none() {
            self.rare = None;
        }
        result
    }

    /// The learned limits that still hold.
    #[inline]
    pub(super) fn learned(&self, now: u64) -> Option<&LearnedLimits> {
        self.annex()?.learned.as_deref().filter(|learned| learned.ends() > now)
    }

    /// Takes out the learned limits, or empty ones, to be changed and put back.
    fn take_learned(&mut self, now: u64) -> Box<LearnedLimits> {
        let learned = self.rare.as_mut().and_then(|rare| rare.annex.learned.take());
        learned.filter(|learned| learned.ends() > now).unwrap_or_default()
    }

    /// The amount that a call takes of a limit. Its reserve includes the units that learned limits keep free.
    #[inline]
    pub(super) fn amount(&self, entry: &Entry<'_>, index: usize, now: u64) -> Amount {
        let amount = entry.operation.amount(index);
        self.learned(now).map_or(amount, |learned| amount.beside(learned, index, &entry.plan.rules[index], now))
    }

    /// The first moment at which the learned limits admit a call.
    #[inline]
    pub(super) fn learned_admits_at(&self, entry: &Entry<'_>, now: u64) -> u64 {
        self.learned(now).map_or(now, |learned| learned.admits_at(now, |index| entry.operation.amount(index).units))
    }

    /// Charges a call to the learned limits, if there are any or the policy learns.
    pub(super) fn charge_learned(&mut self, entry: &Entry<'_>, cost: u64, now: u64, moment: u64) {
        let learning = entry.plan.policy.learning();
        if learning.is_none() && self.learned(now).is_none() {
            return;
        }
        let mut learned = self.take_learned(now);
        let units = |index: usize| entry.operation.amounts().map_or(cost, |amounts| amounts[index].units);
        learned.charge(now, moment, units, learning.map(|learning| learning.asks));
        self.change_annex(|annex| annex.learned = Some(learned));
    }

    /// Takes over the wait and the limits that a response announced.
    pub(super) fn observe(&mut self, plan: &Plan, said: &Said, now: u64) {
        if now + said.wait > self.blocked_until().max(now) {
            self.block_by_hand(plan, now, said.wait);
        }
        let mut learned = self.take_learned(now);
        let used = |index: usize| self.states.get(index).map_or(0, |state| plan.rules[index].used(state, now));
        learned.observe(said, now, plan.policy.asks(), used);
        self.change_annex(|annex| annex.learned = Some(learned).filter(|learned| learned.ends() > now));
    }

    /// When the line, the override and the learned limits end.
    pub(super) fn company_ends(&self) -> u64 {
        self.annex().map_or(0, |annex| {
            let own = annex.stored_override.as_ref().map_or(0, |own| own.last());
            let learned = annex.learned.as_ref().map_or(0, |learned| learned.ends());
            annex.line.iter().map(InLine::ends).fold(own.max(learned), u64::max)
        })
    }

    /// The override that is in force.
    fn stored_override(&self, now: u64) -> Option<&StoredOverride> {
        self.annex()?.stored_override.as_deref().filter(|own| own.last() > now)
    }

    /// The answer to a call that is not made, because it brings other numbers than its key has.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn changed_override(&self, entry: &Entry<'_>, now: u64) -> Option<Answer> {
        let (text, known) = (self.stored_override(now).map_or("", |own| &own.text), entry.plan.stored_override());
        // Some processors take a fifth of a check to compare two empty texts: they look where there is no memory.
        if text.is_empty() && known.is_empty()
            || text == known
            || matches!(entry.operation, Operation::Clear | Operation::Journal | Operation::Override(_))
        {
            return None;
        }
        Some(Answer::not_made(ChangedOverride::To(text.to_owned()), now))
    }

    /// Sets or removes the override of the key. Returns true if there was something to change.
    pub(super) fn change_override(&mut self, change: &OverrideChange, now: u64) -> bool {
        if change.text.is_empty() && self.stored_override(now).is_none() {
            return false;
        }
        let own = Some(Box::new(change.stored(now))).filter(|own| !own.text.is_empty());
        self.change_annex(|annex| annex.stored_override = own);
        true
    }

    pub(super) fn traces(&self, now: u64) -> Traces {
        self.annex().map(|annex| annex.traces.at(now)).unwrap_or_default()
    }

    /// The moment of the last turn that is to come.
    pub(super) fn last_turn(&self, now: u64) -> Option<u64> {
        self.annex().map(|annex| annex.turns_until).filter(|until| *until > now)
    }

    /// Forgets that there were turns, once all have come.
    pub(super) fn end_turns(&mut self, now: u64) {
        if self.annex().is_some_and(|annex| annex.turns_until > 0 && annex.turns_until <= now) {
            self.change_annex(|annex| annex.turns_until = 0);
        }
    }

    #[inline]
    pub(super) fn blocked_until(&self) -> u64 {
        self.annex().map_or(0, |annex| annex.blocked_until)
    }

    pub(super) fn block(&mut self, until: u64, level: BlockLevel) {
        if (until, level) != (self.blocked_until(), self.block_level()) {
            self.change_annex(|annex| (annex.blocked_until, annex.block_level) = (until, level));
        }
    }

    /// Begins a block that no denial has begun.
    pub(super) fn block_by_hand(&mut self, plan: &Plan, now: u64, micros: u64) {
        self.end_block(plan, now);
        self.block((now + micros).min(MAX_SAFE_INTEGER), self.block_level().by_hand());
    }

    pub(super) fn block_level(&self) -> BlockLevel {
        self.annex().map(|annex| annex.block_level).unwrap_or_default()
    }

    /// Until when the level of the last block is remembered.
    pub(super) fn level_ends(&self, plan: &Plan) -> u64 {
        self.annex().map_or(0, |annex| annex.block_level.ends(annex.blocked_until, plan))
    }

    /// Forgets a block that is over, unless the next one depends on it.
    pub(super) fn end_block(&mut self, plan: &Plan, now: u64) {
        if self.level_ends(plan) <= now {
            self.block(0, BlockLevel::default());
        }
    }

    /// The rare part of an answer.
    pub(super) fn rare_answer(&self, now: u64) -> Option<Box<RareAnswer>> {
        let annex = self.annex()?;
        let live = annex.others.iter().filter(|other| other.until > now);
        let waiting = annex.line.iter().filter(|other| other.ends() > now);
        let rare = RareAnswer {
            line: waiting.map(|other| other.since).collect(),
            traces: annex.traces.at(now),
            generation: annex.generation,
            block_level: annex.block_level,
            others: live.map(|other| other.tag.clone()).collect(),
            ..RareAnswer::default()
        };
        (rare != RareAnswer::default()).then(|| Box::new(rare))
    }
}
