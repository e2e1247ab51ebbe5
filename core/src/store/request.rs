//! What is asked of a store, and what it answers.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use crate::algorithm::{HoldId, LeaseTerms, LimitCharge, Rule, State, Traces, View};
use crate::plan::{LimitTag, Plan};
use crate::tables::one_or_many::OneOrMany;

/// What the limits of a policy say, in order.
pub(crate) type Views = OneOrMany<View>;

/// What is stored of the limits of a policy, in order.
pub(crate) type States = SmallVec<[State; 1]>;

/// What to do with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Ask and consume; with `hold` the units of a `concurrency` limit are held under that name.
    Check { cost: u64, hold: HoldId, meta: Option<Arc<[u8]>> },
    /// A check of a caller that waits. It yields to callers that wait for longer and were overtaken often; those of other
    /// processes know it by its number, which is 0 before it has waited.
    Acquire { cost: u64, waiter: HoldId, meta: Option<Arc<[u8]>> },
    /// A partial check: consume as many units as there are, at most `cost`. Where there are none it is a denied check.
    Take { cost: u64, meta: Option<Arc<[u8]>> },
    /// Ask.
    Peek { cost: u64 },
    /// Consume, admitted or not.
    Charge { cost: u64 },
    /// Consume what work has cost beyond its check. Its units are not held: a `concurrency` limit beside others stays as it is.
    Surcharge { cost: u64 },
    /// Give back, whichever call has charged the units.
    Refund { cost: u64 },
    /// Take units in advance, to spend them later. Where hardly any are left it takes none.
    Lease(LeaseTerms),
    /// Give back units of one charge, as far as they are still counted.
    GiveBack { units: u64, charge: Arc<Charge> },
    /// Deny for that many microseconds from now; 0 ends a block.
    Block { micros: u64 },
    /// Make a hold last another ttl.
    Renew { hold: HoldId },
    /// Give a hold back.
    Close { hold: HoldId },
    /// Forget the usage.
    Clear,
    /// Return the newest attempts.
    Journal,
}

impl Operation {
    /// The cost a limit is asked about. A partial check asks about one unit: where that is admitted, it is granted something.
    pub(crate) const fn cost(&self) -> u64 {
        match self {
            Self::Check { cost, .. }
            | Self::Acquire { cost, .. }
            | Self::Peek { cost }
            | Self::Charge { cost }
            | Self::Surcharge { cost }
            | Self::Refund { cost } => *cost,
            _ => 1,
        }
    }

    /// The units that the caller named; 1 for an operation without a cost.
    pub(crate) const fn named_cost(&self) -> u64 {
        match self {
            Self::Take { cost, .. } => *cost,
            Self::Lease(terms) => terms.units,
            Self::GiveBack { units, .. } => *units,
            other => other.cost(),
        }
    }

    /// The units that it consumes where nothing refuses them.
    pub(crate) const fn consumes(&self) -> u64 {
        match self {
            Self::Check { cost, .. }
            | Self::Acquire { cost, .. }
            | Self::Take { cost, .. }
            | Self::Charge { cost }
            | Self::Surcharge { cost } => *cost,
            _ => 0,
        }
    }

    /// What the journal is to say of it.
    #[cfg(feature = "redis")]
    pub(crate) fn metadata(&self) -> &[u8] {
        match self {
            Self::Check { meta: Some(meta), .. }
            | Self::Acquire { meta: Some(meta), .. }
            | Self::Take { meta: Some(meta), .. } => meta,
            _ => &[],
        }
    }

    /// Whether units may go back by it, for which others wait.
    pub(crate) const fn frees(&self) -> bool {
        matches!(
            self,
            Self::Refund { .. } | Self::GiveBack { .. } | Self::Close { .. } | Self::Block { micros: 0 } | Self::Clear
        )
    }

    /// Whether it asks and consumes.
    pub(crate) const fn is_check(&self) -> bool {
        matches!(self, Self::Check { .. } | Self::Acquire { .. } | Self::Take { .. })
    }
}

/// What one call has consumed, as far as it must be known to give it back. docs/adr/0028 has the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Charge {
    /// When, by the time of the store …
    pub(crate) at: u64,
    /// … and for how long after that the units could be spent, of a lease.
    pub(crate) life: u64,
    /// The generation of the key that a lease is for. 0: any.
    pub(crate) generation: u64,
    /// The connection over which a lease was granted. 0: any.
    pub(crate) connection: u64,
    /// The block of this process from which the units were spent; 0 when the store was asked.
    pub(crate) block: u32,
    /// The units that it charged; 0 when that is not known.
    pub(crate) units: u64,
    /// The units that had gone back then, as [`Traces`] count them, and the last clear that was known then.
    pub(crate) refunded: u64,
    pub(crate) cleared_at: u64,
    /// Whether it is the undo of a check: no call used its units.
    pub(crate) is_undone: bool,
    /// For each limit of the policy that was charged: when its bucket would have been empty again, 0 when that is not known.
    pub(crate) limits: SmallVec<[Option<u64>; 2]>,
}

impl Charge {
    /// A charge of which only its moment is known.
    pub(crate) fn at(plan: &Plan, at: u64) -> Self {
        Self { at, limits: plan.rules.iter().map(|_| Some(0)).collect(), ..Self::default() }
    }

    /// What a limit has to know to give units back; `None` for a limit that was not charged.
    pub(crate) fn of_limit(&self, index: usize, units: u64, traces: &Traces) -> Option<LimitCharge> {
        let empty_at = self.limits.get(index).copied().flatten()?;
        Some(LimitCharge {
            units,
            charged: self.units,
            at: self.at,
            life: self.life,
            empty_at,
            refunded: traces.refunded_since(self.at, self.refunded),
            refunds_since: traces.refunded_at >= self.at,
            is_undone: self.is_undone,
        })
    }

    /// Whether the key was cleared since.
    pub(crate) fn was_cleared(&self, traces: &Traces) -> bool {
        traces.cleared_at >= self.at && traces.cleared_at != self.cleared_at
    }
}

/// One operation on one key of one policy.
#[derive(Debug, Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) plan: &'a Arc<Plan>,
    pub(crate) key: &'a str,
    pub(crate) operation: Operation,
}

/// An entry that outlives its call. Nearly every key is short enough to be stored inline.
pub(crate) struct OwnedEntry {
    pub(crate) plan: Arc<Plan>,
    pub(crate) key: CompactString,
    pub(crate) operation: Operation,
}

impl OwnedEntry {
    /// Another operation on the same key.
    pub(crate) fn with(&self, operation: Operation) -> Entry<'_> {
        Entry { plan: &self.plan, key: &self.key, operation }
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        self.with(self.operation.clone())
    }
}

impl From<&Entry<'_>> for OwnedEntry {
    fn from(entry: &Entry<'_>) -> Self {
        Self { plan: Arc::clone(entry.plan), key: entry.key.into(), operation: entry.operation.clone() }
    }
}

/// Copies of entries that outlive their call.
pub(crate) fn owned(entries: &[Entry<'_>]) -> Vec<OwnedEntry> {
    entries.iter().map(OwnedEntry::from).collect()
}

pub(crate) fn borrowed(entries: &[OwnedEntry]) -> Vec<Entry<'_>> {
    entries.iter().map(OwnedEntry::entry).collect()
}

/// One remembered attempt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The units it asked for.
    pub cost: u64,
    /// The metadata of the call.
    pub meta: Option<Vec<u8>>,
}

/// What gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    #[default]
    Store,
    /// This process, which knew that the key is still denied.
    DenyCache,
    /// This process, from a block of units it took in advance.
    Lease,
    /// `on_store_error`, because the store failed.
    Fallback,
}

impl Source {
    /// The word in Decisions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny-cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
        }
    }
}

/// The result of an entry. For everything but a check and a peek, `applied` says whether there was something to do.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) applied: bool,
    /// Units that the operation consumed.
    pub(crate) granted: u64,
    pub(crate) now: u64,
    /// When a block ends; 0 is none.
    pub(crate) blocked_until: u64,
    pub(crate) views: Views,
    /// The limits that refused when they were asked, one bit each. It is given where the views no longer show them: the
    /// views are of the state after a denial that was charged, or after a `check_all` that was undone.
    pub(crate) refused: Option<u16>,
    pub(crate) source: Source,
    /// Denied because the store failed, not because a limit refused.
    pub(crate) unavailable: bool,
    /// May be older than an earlier answer: a replica may have given it.
    pub(crate) may_be_old: bool,
    /// For how many microseconds the denial may be repeated without asking again.
    pub(crate) denied_for: u32,
    /// The generation of the key in which it may: see `DenialGenerations`.
    pub(crate) denial_generation: u32,
    /// What is stored after the call, of an answer of a shared store. The layers take it; no Decision keeps it.
    pub(crate) states: Option<Box<States>>,
    /// The block of a lease that was spent; 0 is none.
    pub(crate) block: u32,
    pub(crate) rare: Option<Box<RareAnswer>>,
}

/// What only few answers have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RareAnswer {
    /// The attempts of a journal.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) traces: Traces,
    /// The generation of the key that a lease is for.
    pub(crate) generation: u64,
    /// The connection over which the answer to a lease came.
    pub(crate) connection: u64,
    /// The limits of another release that count this key too.
    pub(crate) others: Vec<LimitTag>,
}

impl Answer {
    /// This answer, which came over the connection of that number: the holder of a lease has to know it.
    #[cfg(feature = "redis")]
    pub(crate) fn over_connection(mut self, connection: Option<u64>) -> Self {
        if let Some(rare) = self.rare.as_mut().filter(|rare| rare.generation > 0) {
            rare.connection = connection.unwrap_or(0);
        }
        self
    }

    /// What undoes the check that it admitted.
    pub(crate) fn undo(&self, plan: &Plan, cost: u64) -> Operation {
        let charge = Arc::new(Charge { limits: self.charged_limits(plan), is_undone: true, ..self.charge() });
        Operation::GiveBack { units: cost, charge }
    }

    /// What it says of its charge, but for the limits.
    pub(crate) fn charge(&self) -> Charge {
        let Traces { refunded, cleared_at, .. } = self.traces();
        Charge { at: self.now, units: self.granted, block: self.block, refunded, cleared_at, ..Charge::default() }
    }

    /// When the bucket of each limit is empty again.
    fn charged_limits(&self, plan: &Plan) -> SmallVec<[Option<u64>; 2]> {
        let empty_at = |(rule, view): (&Rule, &View)| Some(if rule.meter().is_some() { view.resets_at } else { 0 });
        plan.rules.iter().zip(&self.views).map(empty_at).collect()
    }

    pub(crate) fn traces(&self) -> Traces {
        self.rare.as_ref().map(|rare| rare.traces).unwrap_or_default()
    }

    /// A refusal of a caller that has to wait for others, though there is room for it: no limit refused it.
    pub(crate) fn yield_to_others(&mut self) {
        let now = self.now;
        let waits = |view: &View| view.admits_at.is_none_or(|at| at > now);
        if self.blocked_until <= now && !self.views.iter().any(waits) {
            self.refused = Some(0);
            self.views.iter_mut().for_each(|view| view.admits_at = Some(now + 1));
        }
    }

    /// The attempts of a journal; none for other answers.
    pub(crate) fn into_attempts(self) -> Vec<Attempt> {
        self.rare.map(|rare| rare.attempts).unwrap_or_default()
    }
}
