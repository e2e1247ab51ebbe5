//! The usage of one policy and key, and the effect of each operation on it, for every store except servers.

mod annex;
mod conversion;
mod drafts;
mod journal;
mod operations;
#[cfg(feature = "redis")]
mod stored_form;
pub(super) mod unstored;
mod waiting_line;

use std::sync::Arc;

use crate::algorithm::{Rule, State, Traces};
use crate::plan::{Amount, BlockLevel, Plan, StateFormat};
use crate::store::request::{Answer, Entry};
use crate::tables::allocation::allocated;
use crate::tables::one_or_many::OneOrMany;
use annex::UsageAnnex;
pub(super) use drafts::{Draft, decide_all};
#[cfg(feature = "redis")]
pub(super) use drafts::{Together, decide_together};
use journal::Journal;
#[cfg(feature = "redis")]
pub(super) use journal::is_noted;
#[cfg(feature = "redis")]
pub(super) use stored_form::{Glance, glance, stored_override};

/// The stored data of one policy and key. Its size decides how much memory and time a store of many keys takes. So does
/// its order: an allowed check does not read the end, and so no third cache line.
#[repr(C)]
pub(in crate::store) struct Usage {
    format: Arc<StateFormat>,
    rare: Option<Box<RareState>>,
    /// When states and block no longer matter.
    pub(in crate::store) expires_at: u64,
    states: UsageStates,
    /// Until when the last refused check would be refused again.
    denies_until: u64,
}

type UsageStates = OneOrMany<State>;

/// The parts that few usages have.
#[derive(Default)]
struct RareState {
    annex: UsageAnnex,
    journal: Option<Journal>,
}

impl RareState {
    fn bytes(&self) -> usize {
        allocated(size_of::<Self>()) + self.annex.heap_bytes() + self.journal.as_ref().map_or(0, Journal::heap_bytes)
    }
}

/// The data of a key that is known from elsewhere, beside its states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resumed {
    pub(crate) blocked_until: u64,
    pub(crate) block_level: BlockLevel,
    pub(crate) traces: Traces,
}

/// The parts of a usage that a call may change.
#[derive(Clone)]
pub(in crate::store) struct StoredState {
    pub(in crate::store) format: Arc<StateFormat>,
    pub(in crate::store) states: UsageStates,
    annex: UsageAnnex,
}

impl Usage {
    pub(in crate::store) fn new(plan: &Plan) -> Self {
        Self {
            format: Arc::clone(&plan.format),
            states: plan.rules.iter().map(Rule::fresh).collect(),
            expires_at: 0,
            rare: None,
            denies_until: 0,
        }
    }

    /// The identity of its policy.
    pub(in crate::store) fn identity(&self) -> u128 {
        self.format.identity
    }

    /// True if it is a usage of this policy, in any version.
    #[inline(always)]
    pub(in crate::store) fn is_of(&self, plan: &Plan) -> bool {
        let format = &plan.format;
        Arc::ptr_eq(&self.format, format) || self.format.identity == format.identity
    }

    /// The bytes that it has allocated.
    #[inline]
    pub(in crate::store) fn heap_bytes(&self) -> usize {
        let states = self.states.heap_bytes() + self.states.iter().map(State::heap_bytes).sum::<usize>();
        states + self.rare.as_ref().map_or(0, |rare| rare.bytes())
    }

    /// When the denial of the key ends, if it is denied.
    pub(in crate::store) fn denial_ends(&self) -> u64 {
        let own = self.annex().and_then(|annex| annex.stored_override.as_ref()).map_or(0, |own| own.last());
        self.denies_until.max(self.blocked_until()).max(own)
    }

    /// When the denial of the key ends, after a call with that answer. A key without units left counts as denied until it has some.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn denies_until(&self, answer: &Answer) -> u64 {
        let full = answer.views.iter().filter(|view| view.left <= 0).filter_map(|view| view.admits_at).max();
        self.denial_ends().max(full.unwrap_or(0))
    }

    /// True if the key is denied: removing its usage would admit the next check.
    pub(in crate::store) fn is_denying(&self, now: u64) -> bool {
        self.denial_ends() > now
    }

    #[inline(always)]
    pub(in crate::store) fn admits(&self, entry: &Entry<'_>, now: u64) -> bool {
        let (cost, amounts) = (entry.operation.cost(), entry.operation.amounts());
        let mut limits = entry.plan.rules.iter().zip(&self.states);
        self.blocked_until() <= now
            && self.learned_admits_at(entry, now) <= now
            && match amounts {
                _ if self.rare.is_some() => limits
                    .enumerate()
                    .all(|(index, (rule, state))| self.amount(entry, index, now).is_admitted(rule, state, now)),
                None => limits.all(|(rule, state)| rule.admits(state, now, cost)),
                Some(amounts) => {
                    limits.zip(amounts).all(|((rule, state), amount)| amount.is_admitted(rule, state, now))
                }
            }
    }

    /// True if the limits admit a check, and only units that must stay free for others refuse it.
    pub(in crate::store) fn spares(&self, entry: &Entry<'_>, now: u64) -> bool {
        let mut asked = entry.plan.rules.iter().zip(&self.states).enumerate();
        self.blocked_until() <= now
            && entry.operation.amounts().is_some()
            && asked.all(|(index, (rule, state))| {
                let Amount { units, reserve } = self.amount(entry, index, now);
                let learned = reserve - entry.operation.amount(index).reserve;
                Amount { units, reserve: learned }.is_admitted(rule, state, now)
            })
            && self.learned_admits_at(entry, now) <= now
    }

    /// The limits that refuse a check now, one bit each.
    #[cold]
    pub(in crate::store) fn refusing_limits(&self, entry: &Entry<'_>, now: u64) -> u16 {
        let asked = entry.plan.rules.iter().zip(&self.states).enumerate();
        let refusing =
            asked.filter(|(index, (rule, state))| !self.amount(entry, *index, now).is_admitted(rule, state, now));
        let learned =
            self.learned(now).map_or(0, |learned| learned.refusing(now, |index| entry.operation.amount(index).units));
        refusing.fold(learned, |bits, (index, _)| bits | 1 << index)
    }

    /// Remembers until when a denial lasts.
    pub(in crate::store) fn remember_denial(&mut self, answer: &Answer) {
        let moments = answer.views.iter().filter_map(|view| view.admits_at);
        self.denies_until = moments.fold(self.blocked_until(), u64::max);
    }

    /// Remembers until when a debt denies every check, even before one was made.
    fn remember_debt(&mut self, plan: &Plan, now: u64) {
        let views = plan.rules.iter().zip(&self.states).map(|(rule, state)| rule.view(state, now, 1, 0));
        let ends = views.filter(|view| view.left < 0).filter_map(|view| view.admits_at).max();
        self.denies_until = self.denies_until.max(ends.unwrap_or(0));
    }

    /// Clears states that no longer matter, as Redis drops the key. Called after a change.
    pub(in crate::store) fn refresh_expiry(&mut self, plan: &Plan, now: u64) {
        let annex_ends = self.annex().map_or(0, |annex| annex.traces.until.max(self.level_ends(plan)));
        self.expires_at = self.meaning_ends(plan).max(annex_ends).max(self.company_ends());
        if self.expires_at <= now {
            self.clear_states(&plan.rules);
        }
    }

    /// When the states mean the same as no states.
    fn states_end(&self, plan: &Plan) -> u64 {
        plan.rules.iter().zip(&self.states).map(|(rule, state)| rule.ends(state)).max().unwrap_or(0)
    }

    /// When earlier charges no longer count, even beside later ones.
    fn charges_end(&self, plan: &Plan) -> u64 {
        plan.rules.iter().zip(&self.states).map(|(rule, state)| rule.charges_end(state)).max().unwrap_or(0)
    }

    /// When the key reads as unused.
    fn meaning_ends(&self, plan: &Plan) -> u64 {
        let ends = self.annex().map_or(0, UsageAnnex::ends).max(self.states_end(plan));
        if ends == 0 { 0 } else { ends + plan.grace }
    }

    #[cold]
    pub(in crate::store) fn clear_states(&mut self, rules: &[Rule]) {
        self.states = rules.iter().map(Rule::fresh).collect();
        if self.rare.is_some() {
            self.change_annex(|annex| *annex = UsageAnnex::default());
        }
        self.expires_at = 0;
    }

    fn journal(&self) -> Option<&Journal> {
        self.rare.as_ref()?.journal.as_ref()
    }

    pub(in crate::store) fn stored_state(&self) -> StoredState {
        let annex = self.annex().cloned().unwrap_or_default();
        StoredState { format: Arc::clone(&self.format), states: self.states.clone(), annex }
    }

    /// Goes on from states that are known from elsewhere.
    pub(in crate::store) fn resume(&mut self, states: UsageStates, resumed: Resumed) {
        let Resumed { blocked_until, block_level, traces } = resumed;
        self.states = states;
        self.block(blocked_until, block_level);
        if traces != Traces::default() {
            self.change_annex(|annex| annex.traces = traces);
        }
    }

    pub(in crate::store) fn restore(&mut self, state: StoredState) {
        (self.format, self.states) = (state.format, state.states);
        if self.rare.is_some() || state.annex != UsageAnnex::default() {
            self.change_annex(|annex| *annex = state.annex);
        }
    }

    pub(in crate::store) fn is_live(&self, now: u64) -> bool {
        self.expires_at > now || self.journal().is_some_and(|journal| journal.expires_at > now)
    }
}
