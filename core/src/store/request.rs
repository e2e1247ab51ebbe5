//! The operations on a store, and its answers.

mod charge;
mod details;
mod entry;
mod simple_answer;
mod source;

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

pub(crate) use self::charge::{Charge, ChargedAmount};
pub(crate) use self::details::{Details, LinePlace, PATIENCE, RANK_SHIFT};
pub(crate) use self::entry::{Entry, OwnedEntry, borrowed, owned};
pub(crate) use self::simple_answer::SimpleAnswer;
pub use self::source::Source;
use crate::algorithm::{HoldId, LearnedAnswer, LeaseTerms, Rule, Said, State, Traces, View};
use crate::plan::{Amount, Amounts, BlockLevel, LimitTag, Plan};
pub(crate) use crate::plan::{ChangedOverride, MAX_OVERRIDDEN_KEY, OverrideChange, StoredOverride};
use crate::tables::one_or_many::OneOrMany;

/// The views of a policy's limits, in order.
pub(crate) type Views = OneOrMany<View>;

/// The stored states of a policy's limits, in order.
pub(crate) type States = SmallVec<[State; 1]>;

/// An operation on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Ask and consume. A `concurrency` limit holds the units under the name `hold`.
    Check { cost: u64, hold: HoldId, details: Option<Arc<Details>> },
    /// A check of a caller that waits. Its details have its place in the line. A refusal changes only that place: it is
    /// no denial, and no attempt in the journal.
    Acquire { cost: u64, hold: HoldId, details: Option<Arc<Details>> },
    /// A caller that has waited was denied. Only the journal notes it.
    NoteDenial { cost: u64, details: Option<Arc<Details>> },
    /// A caller does not wait any more, and no other caller of its process takes its place.
    Leave { waiter: HoldId },
    /// A check of a caller that waits for its turn. It charges every bucket as of the first moment at which all of them
    /// admit it, if that comes in at most `within` microseconds. `instead_of` is the time at which the caller took a
    /// turn that it now gives up, or 0: this attempt replaces that one in the journal. docs/adr/0036 has the reasons.
    Turn { cost: u64, within: u64, instead_of: u64, details: Option<Arc<Details>> },
    /// A partial check: consume as many units as there are, at most `cost`. If there are none, it is a denied check.
    Take { cost: u64, details: Option<Arc<Details>> },
    /// Ask, and consume nothing.
    Peek { cost: u64, details: Option<Arc<Details>> },
    /// Consume, admitted or not.
    Charge { cost: u64, details: Option<Arc<Details>> },
    /// Consume units that work has cost beyond its check. A `concurrency` limit beside others does not hold them.
    Surcharge { cost: u64, details: Option<Arc<Details>> },
    /// Give units back, no matter which call has charged them.
    Refund { cost: u64, details: Option<Arc<Details>> },
    /// Take units in advance, to spend them later. If hardly any are left, it takes none.
    Lease(LeaseTerms),
    /// Give back units of one charge, as far as they are still counted.
    GiveBack { units: u64, charge: Arc<Charge> },
    /// Learn from the limits that a response announced for the key.
    Observe(Arc<Said>),
    /// Deny for that many microseconds from now. 0 ends a block.
    Block { micros: u64 },
    /// Make a hold last another ttl.
    Renew { hold: HoldId },
    /// Give a hold back.
    Close { hold: HoldId },
    /// Forget the usage.
    Clear,
    /// Return the newest attempts.
    Journal,
    /// Set or remove the override of a key.
    Override(Arc<OverrideChange>),
    /// Note in the list of a policy that a key has an override, or has none any more.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "no store of this build has keys beside"))]
    NoteOverride(Arc<OverrideChange>),
    /// Return that list.
    ListOverrides,
}

impl Operation {
    /// A check of `cost` units of each limit.
    pub(crate) const fn check(cost: u64) -> Self {
        Self::Check { cost, hold: 0, details: None }
    }

    /// A peek of `cost` units of each limit.
    pub(crate) const fn peek(cost: u64) -> Self {
        Self::Peek { cost, details: None }
    }

    /// A charge of `cost` units of each limit.
    #[cfg(any(feature = "redis", test))]
    pub(crate) const fn charge(cost: u64) -> Self {
        Self::Charge { cost, details: None }
    }

    /// The peek of this check. It consumes nothing.
    pub(crate) fn as_peek(&self) -> Self {
        Self::Peek { cost: self.cost(), details: self.details().cloned() }
    }

    /// The turn for this check in at most `within` microseconds, in place of the turn that was taken at `instead_of`.
    pub(crate) fn as_turn(&self, within: u64, instead_of: u64) -> Self {
        Self::Turn { cost: self.cost(), within, instead_of, details: self.details().cloned() }
    }

    /// The operation that notes a denial of this check in the journal.
    pub(crate) fn as_noted_denial(&self) -> Self {
        Self::NoteDenial { cost: self.cost(), details: self.details().cloned() }
    }

    /// The cost that a limit is asked for, if the call has no amount for each limit. A partial check asks for one unit:
    /// if that is admitted, it is granted something.
    pub(crate) const fn cost(&self) -> u64 {
        match self {
            Self::Check { cost, .. }
            | Self::Acquire { cost, .. }
            | Self::NoteDenial { cost, .. }
            | Self::Turn { cost, .. }
            | Self::Peek { cost, .. }
            | Self::Charge { cost, .. }
            | Self::Surcharge { cost, .. }
            | Self::Refund { cost, .. } => *cost,
            _ => 1,
        }
    }

    /// The units that the caller named. 1 for an operation without a cost.
    pub(crate) const fn named_cost(&self) -> u64 {
        match self {
            Self::Take { cost, .. } => *cost,
            Self::Lease(terms) => terms.units,
            Self::GiveBack { units, .. } => *units,
            other => other.cost(),
        }
    }

    /// The units that it consumes if nothing refuses it.
    pub(crate) const fn consumes(&self) -> u64 {
        match self {
            Self::Check { cost, .. }
            | Self::Acquire { cost, .. }
            | Self::Turn { cost, .. }
            | Self::Take { cost, .. }
            | Self::Charge { cost, .. }
            | Self::Surcharge { cost, .. } => *cost,
            _ => 0,
        }
    }

    /// Its details beside the cost.
    #[inline]
    pub(crate) const fn details(&self) -> Option<&Arc<Details>> {
        match self {
            Self::Check { details, .. }
            | Self::Acquire { details, .. }
            | Self::NoteDenial { details, .. }
            | Self::Turn { details, .. }
            | Self::Take { details, .. }
            | Self::Peek { details, .. }
            | Self::Charge { details, .. }
            | Self::Surcharge { details, .. }
            | Self::Refund { details, .. } => details.as_ref(),
            _ => None,
        }
    }

    /// The amount of each limit, if it is not the cost for all.
    #[inline(always)]
    pub(crate) fn amounts(&self) -> Option<&[Amount]> {
        if let Self::Check { details: None, .. } = self {
            return None;
        }
        self.details().map(|details| &*details.amounts).filter(|amounts| !amounts.is_empty())
    }

    /// The amount that it asks of a limit.
    #[inline]
    pub(crate) fn amount(&self, index: usize) -> Amount {
        let own = self.amounts().and_then(|amounts| amounts.get(index));
        own.copied().unwrap_or(Amount::of(self.cost()))
    }

    /// The units that it has charged to a limit: its amount, or the granted units of a partial check. If nothing was
    /// granted, nothing was charged.
    pub(crate) const fn charged(&self, amount: Amount, granted: Option<u64>) -> u64 {
        match (self, granted) {
            (Self::Take { .. }, Some(granted)) => granted,
            (_, Some(_)) if self.charges() => amount.units,
            _ => 0,
        }
    }

    /// True if it consumes units when nothing refuses it.
    const fn charges(&self) -> bool {
        self.is_check() || matches!(self, Self::Charge { .. } | Self::Surcharge { .. })
    }

    /// The place of its caller in the line.
    pub(crate) fn line(&self) -> Option<LinePlace> {
        self.details()?.line
    }

    /// The metadata that the journal keeps of it.
    pub(crate) fn metadata(&self) -> Option<&[u8]> {
        self.details()?.meta.as_deref()
    }

    /// True if it may give back units for which others wait.
    pub(crate) const fn frees(&self) -> bool {
        matches!(
            self,
            Self::Refund { .. }
                | Self::GiveBack { .. }
                | Self::Close { .. }
                | Self::Block { micros: 0 }
                | Self::Clear
                | Self::Observe(_)
        )
    }

    /// True if waiting callers ask again after it: units may be back, or a block may outlast their time.
    pub(crate) const fn wakes_waiters(&self) -> bool {
        self.frees() || matches!(self, Self::Block { .. })
    }

    /// True if it takes units in advance, or gives such units back.
    #[cfg(feature = "redis")]
    pub(crate) fn is_of_lease(&self) -> bool {
        match self {
            Self::Lease(_) => true,
            Self::GiveBack { charge, .. } => charge.generation != 0,
            _ => false,
        }
    }

    /// True if it asks and consumes.
    pub(crate) const fn is_check(&self) -> bool {
        matches!(self, Self::Check { .. } | Self::Acquire { .. } | Self::Turn { .. } | Self::Take { .. })
    }
}

/// One remembered attempt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// True if it was allowed.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: u64,
    /// The metadata of the call.
    pub meta: Option<Vec<u8>>,
}

/// The result of an entry. `applied` is true if a check or peek was admitted, or another operation had something to do.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) applied: bool,
    /// Units that the operation consumed.
    pub(crate) granted: u64,
    pub(crate) now: u64,
    /// When a block ends. 0 means none.
    pub(crate) blocked_until: u64,
    pub(crate) views: Views,
    /// The limits that refused when they were asked, one bit each. It is given if the views no longer show them: the
    /// views are of the state after a denial that was charged, or after a `check_all` that was undone.
    pub(crate) refused: Option<u16>,
    pub(crate) source: Source,
    /// Denied because the store failed, not because a limit refused.
    pub(crate) unavailable: bool,
    /// May be older than an earlier answer: a replica may have given it.
    pub(crate) may_be_old: bool,
    /// For how many microseconds the denial may be repeated without asking again.
    pub(crate) denied_for: u32,
    /// The generation of the key in which it may be repeated: see `DenialGenerations`.
    pub(crate) denial_generation: u32,
    /// The stored states after the call, from a shared store. The layers take them, so no Decision keeps them.
    pub(crate) states: Option<Box<States>>,
    /// The block of a lease that was spent. 0 means none.
    pub(crate) block: u32,
    pub(crate) rare: Option<Box<RareAnswer>>,
}

/// The parts that few answers have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RareAnswer {
    /// The attempts of a journal.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) traces: Traces,
    /// The learned limits of the key.
    pub(crate) learned: Option<LearnedAnswer>,
    /// The generation of the key that a lease is for.
    pub(crate) generation: u64,
    /// The connection over which the answer to a lease came.
    pub(crate) connection: u64,
    /// The level of the last block, for a policy with blocks that become longer: see [`BlockLevel`].
    pub(crate) block_level: BlockLevel,
    /// The limits of other versions of the policy that count this key too.
    pub(crate) others: Vec<LimitTag>,
    /// Since when each process has a caller in the line of the key, for each class.
    pub(crate) line: Vec<u64>,
    /// The amount that the call took of each limit, if it is not the cost for all.
    pub(crate) amounts: Amounts,
    /// True if the call has consumed these amounts.
    pub(crate) has_charged: bool,
    /// The moment of the turn that the call has taken. 0 if it need not wait.
    pub(crate) turn_at: u64,
    /// When the units were charged, if the time of the answer is that of its turn. 0 otherwise.
    pub(crate) charged_at: u64,
    /// Why the call was not made, if it brought other numbers than its key has.
    pub(crate) changed_override: Option<ChangedOverride>,
    /// The deadline of a call that has to be repeated, if it is known.
    pub(crate) deadline: Option<Instant>,
    /// The keys of a policy that have an override.
    pub(crate) overrides: Vec<StoredOverride>,
    /// By how many microseconds the calendar is ahead of the time of the store.
    pub(crate) ahead: i64,
}

impl RareAnswer {
    /// The rare part with the level of a block. `None` if there is no level.
    pub(crate) fn of_level(block_level: BlockLevel) -> Option<Box<Self>> {
        (block_level != BlockLevel::default()).then(|| Box::new(Self { block_level, ..Self::default() }))
    }
}

impl Answer {
    /// The answer to a call that was not made, because it brought other numbers than its key has.
    pub(crate) fn not_made(changed: ChangedOverride, now: u64) -> Self {
        let rare = RareAnswer { changed_override: Some(changed), ..RareAnswer::default() };
        Self { now, rare: Some(Box::new(rare)), ..Self::default() }
    }

    /// The answers to entries that are decided together, if one of them brought other numbers than its key has.
    pub(crate) fn all_changed(changed: Vec<Option<Self>>, now: u64) -> Vec<Self> {
        let other = || Self::not_made(ChangedOverride::OfAnother, now);
        changed.into_iter().map(|answer| answer.unwrap_or_else(other)).collect()
    }

    /// The answer with the keys of a policy that have an override.
    pub(crate) fn of_overrides(overrides: Vec<StoredOverride>, now: u64) -> Self {
        Self { now, rare: Some(Box::new(RareAnswer { overrides, ..RareAnswer::default() })), ..Self::default() }
    }

    /// This answer, of a store that is so far behind the calendar. Attempts get the time of the calendar.
    #[cfg(feature = "redis")]
    pub(crate) fn with_calendar_ahead(mut self, ahead: i64) -> Self {
        let rare = self.rare.get_or_insert_default();
        rare.ahead = ahead;
        rare.attempts.iter_mut().for_each(|attempt| attempt.at = attempt.at.saturating_add_signed(ahead));
        self
    }

    /// The calendar time at a moment of the store that gave the answer.
    pub(crate) fn calendar_at(&self, moment: u64) -> u64 {
        moment.saturating_add_signed(self.calendar_ahead())
    }

    /// By how many microseconds the calendar is ahead of the time of the store that gave it.
    pub(crate) fn calendar_ahead(&self) -> i64 {
        self.rare.as_ref().map_or(0, |rare| rare.ahead)
    }

    /// This answer, with the connection over which it came, or the epoch of its store. The holder of a lease needs it.
    #[cfg(feature = "redis")]
    pub(crate) fn over_connection(mut self, connection: Option<u64>) -> Self {
        if let Some(rare) = self.rare.as_mut().filter(|rare| rare.generation > 0) {
            rare.connection = connection.unwrap_or(0);
        }
        self
    }

    /// The operation that undoes the check that this answer admitted.
    pub(crate) fn undo(&self, plan: &Plan, check: &Operation) -> Operation {
        let amounts = check.amounts().unwrap_or_default().iter().map(|amount| amount.units);
        let amounts = amounts.map(|units| ChargedAmount { back: units, charged: units }).collect();
        let charge = Charge { limits: self.charged_limits(plan), amounts, is_undone: true, ..self.charge() };
        Operation::GiveBack { units: check.cost(), charge: Arc::new(charge) }
    }

    /// The charge of the answer, without the limits.
    pub(crate) fn charge(&self) -> Charge {
        let Traces { refunded, cleared_at, .. } = self.traces();
        let charged_at = self.rare.as_ref().map_or(0, |rare| rare.charged_at);
        let at = if charged_at > 0 { charged_at } else { self.now };
        let life = self.now - at;
        Charge { at, life, units: self.granted, block: self.block, refunded, cleared_at, ..Charge::default() }
    }

    /// For how many microseconds the caller has to wait for its turn. `None` if it need not wait.
    pub(crate) fn turn_after(&self) -> Option<u64> {
        let turn_at = self.rare.as_ref()?.turn_at;
        (turn_at > 0).then(|| turn_at.saturating_sub(self.now))
    }

    /// This answer as of its turn.
    pub(crate) fn at_turn(mut self) -> Self {
        if let Some(rare) = self.rare.as_mut().filter(|rare| rare.turn_at > 0) {
            rare.charged_at = self.now;
            self.now = std::mem::take(&mut rare.turn_at);
        }
        self
    }

    /// When the bucket of each limit is empty again.
    pub(crate) fn charged_limits(&self, plan: &Plan) -> SmallVec<[Option<u64>; 2]> {
        let empty_at = |(rule, view): (&Rule, &View)| Some(if rule.meter().is_some() { view.resets_at } else { 0 });
        plan.rules.iter().zip(&self.views).map(empty_at).collect()
    }

    /// Keeps the amount that the call took of each limit, for its Decision.
    #[inline(always)]
    pub(crate) fn keep_amounts(&mut self, operation: &Operation) {
        match operation.amounts() {
            Some(amounts) if !matches!(operation, Operation::Take { .. }) => {
                let rare = self.rare.get_or_insert_default();
                rare.amounts = amounts.into();
                rare.has_charged = self.applied && operation.charges();
            }
            _ => {}
        }
    }

    /// This answer. A call that has to be made again because of it has the deadline of the first one.
    #[cfg(feature = "redis")]
    pub(crate) fn within(mut self, deadline: Option<Instant>) -> Self {
        if let Some(rare) = self.rare.as_mut().filter(|rare| rare.changed_override.is_some()) {
            rare.deadline = deadline;
        }
        self
    }

    /// Why the call was not made, if it brought other numbers than its key has.
    #[inline]
    pub(crate) fn changed_override(&self) -> Option<&ChangedOverride> {
        self.rare.as_ref()?.changed_override.as_ref()
    }

    /// The learned part of the answer.
    pub(crate) fn learned(&self) -> Option<&LearnedAnswer> {
        self.rare.as_ref()?.learned.as_ref()
    }

    /// The level of the last block, for a policy with blocks that become longer.
    pub(crate) fn block_level(&self) -> BlockLevel {
        self.rare.as_ref().map(|rare| rare.block_level).unwrap_or_default()
    }

    /// The amount that the call took of each limit. Empty if that is the cost for all.
    pub(crate) fn amounts(&self) -> &[Amount] {
        self.rare.as_ref().map_or(&[], |rare| &rare.amounts)
    }

    /// The units of a limit that the call has consumed.
    pub(crate) fn charged(&self, index: usize) -> u64 {
        match &self.rare {
            Some(rare) if !rare.amounts.is_empty() => {
                rare.amounts.get(index).filter(|_| rare.has_charged).map_or(0, |amount| amount.units)
            }
            _ => self.granted,
        }
    }

    /// Forgets the charge of a call that was undone, because another one of several was refused.
    pub(crate) fn forget_charge(&mut self) {
        self.granted = 0;
        if let Some(rare) = &mut self.rare {
            rare.has_charged = false;
        }
    }

    pub(crate) fn traces(&self) -> Traces {
        self.rare.as_ref().map(|rare| rare.traces).unwrap_or_default()
    }

    /// Marks the refusal of a caller that has to wait for others although there is room: no limit refused it.
    pub(crate) fn yield_to_others(&mut self) {
        let now = self.now;
        let waits = |view: &View| view.admits_at.is_none_or(|at| at > now);
        if self.blocked_until <= now && !self.views.iter().any(waits) {
            self.refused = Some(0);
            self.views.iter_mut().for_each(|view| view.admits_at = Some(now + 1));
        }
    }

    /// Shows a key without limits as unused. Its limits are not asked, whatever they have counted.
    #[inline(always)]
    pub(crate) fn see_unlimited(&mut self, plan: &Plan) {
        if plan.overridden.is_some() {
            self.see_overridden(plan);
        }
    }

    #[cold]
    fn see_overridden(&mut self, plan: &Plan) {
        if plan.is_unlimited() && self.learned().is_none() {
            self.views = plan.unused_views(self.now, |_| Amount::of(0));
        }
    }

    /// The keys of a policy that have an override. None for other answers.
    pub(crate) fn into_overrides(self) -> Vec<StoredOverride> {
        self.rare.map(|rare| rare.overrides).unwrap_or_default()
    }

    /// The attempts of a journal. None for other answers.
    pub(crate) fn into_attempts(self) -> Vec<Attempt> {
        self.rare.map(|rare| rare.attempts).unwrap_or_default()
    }
}
