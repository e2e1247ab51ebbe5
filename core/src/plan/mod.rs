//! A policy made ready to be applied: its rules, and the layout of its stored value.

mod amount;
mod block_level;
mod conversion;
mod limit_tag;
pub(crate) mod plan_cache;
#[cfg_attr(not(feature = "stored"), path = "without_stored.rs")]
mod stored;
mod stored_override;
#[cfg(feature = "stored")]
mod stored_value;

use std::sync::Arc;

use once_cell::race::OnceBox;
use smallvec::SmallVec;

use crate::algorithm::{LeaseTerms, Rule, View};
use crate::counting::cells::PolicyCounts;
use crate::error::Result;
use crate::policy::{DerivedValue, KeyOverride, Limit, MAX_LIMITS, Policy, SHORTEST_LEASE};
use crate::tables::allocation::{allocated, spilled};
use crate::tables::one_or_many::OneOrMany;

pub(crate) use amount::{Amount, Amounts};
pub(crate) use block_level::BlockLevel;
pub(crate) use conversion::StoredLimit;
pub(crate) use limit_tag::LimitTag;
use stored::StoredForm;
#[cfg(feature = "stored")]
pub(crate) use stored::section;
pub(crate) use stored_override::{
    ChangedOverride, MAX_OVERRIDDEN_KEY, MAX_OVERRIDDEN_KEYS, OverrideChange, StoredOverride,
};
#[cfg(feature = "stored")]
pub(crate) use stored_value::{parts_of_any, states_of_any};

/// The longest metadata of an attempt, in bytes.
pub(crate) const MAX_METADATA: usize = 65_536;
/// A limit is near when at most one of so many parts of it is left.
const PARTS_OF_LIMIT: u64 = 5;

/// Handles of a plan that exist without any table: the policy's own, a caller's, those of the plan cache.
const FEW_HANDLES: usize = 4;

/// The identity of usage in memory and the format of its states. Plans that agree in both share the usage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StateFormat {
    /// A digest of the policy's name.
    pub(crate) identity: u128,
    /// The identities of the limits, in order.
    pub(crate) tags: Box<[LimitTag]>,
}

/// The override in a plan that has the numbers of one key.
#[derive(Debug, Clone)]
pub(crate) struct PlanOverride {
    /// The plan of the policy without the override.
    pub(crate) base: Arc<Plan>,
    /// The override as the store has it. Empty if the policy itself has it, in its file or in code.
    pub(crate) text: String,
    pub(crate) is_unlimited: bool,
}

/// A policy, its rules and its layout. It is made once and shared by every call.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    pub(crate) rules: SmallVec<[Rule; 2]>,
    /// Marks usage in memory as this policy's.
    pub(crate) format: Arc<StateFormat>,
    pub(crate) stored: StoredForm,
    /// True if a denied check is charged too.
    pub(crate) charges_denials: bool,
    /// True if a denial may change the stored value.
    pub(crate) denial_writes: bool,
    /// True if a limit has units that are given back by name, so that only `hold` can take them.
    pub(crate) is_held: bool,
    /// True if a limit names its unit.
    pub(crate) has_units: bool,
    /// True if `acquire` takes a turn in the store. All limits are buckets then.
    pub(crate) takes_turns: bool,
    /// True if a limit has a custom calendar.
    pub(crate) has_calendar: bool,
    /// True if the state of its one limit answers every peek, and every check that it refuses. Neither leaves a trace then.
    pub(crate) answers_by_state: bool,
    /// True if it has one limit, and a check changes only that limit's state while nothing else is stored for the key.
    pub(crate) is_simple: bool,
    /// True if a check needs only a cost: the policy has neither units to hold nor names of units.
    pub(crate) is_plain: bool,
    /// The time for which a level is remembered after a block. 0 if blocks do not become longer.
    pub(crate) level_life: u64,
    /// The time for which a key is kept after all its states have ended. Only for buckets with `initial`.
    pub(crate) grace: u64,
    /// The most units that a process takes in advance, if the policy leases and its units can be spent later.
    pub(crate) lease: Option<LeaseTerms>,
    /// Identifies the policy in stores: a digest of its name.
    pub(crate) identity: u128,
    /// The counts of decisions in the first limiter that uses it.
    pub(crate) counts: OnceBox<Arc<PolicyCounts>>,
    /// The override, if this plan has the numbers of one key.
    pub(crate) overridden: Option<PlanOverride>,
    /// The units that are left of the first limit when it is near.
    near_limit: i64,
    /// The bytes that it takes, without those of its stored form.
    bytes: usize,
}

impl Plan {
    /// The plan of a policy, as a type that `policy` does not know. It is made once and kept with the policy and its
    /// clones.
    #[inline]
    pub(crate) fn derived_from(policy: &Policy) -> &DerivedValue {
        policy.derived(|policy| Arc::new(Self::new(policy)))
    }

    /// The plan of a policy.
    pub(crate) fn of(policy: &Policy) -> Arc<Self> {
        let plan = Arc::clone(Self::derived_from(policy)).downcast();
        plan.unwrap_or_else(|_| unreachable!("only plans are derived from policies"))
    }

    /// The plan for a key with an override. `text` is the override as the store has it.
    ///
    /// # Errors
    /// `policy_invalid` for numbers that the options of the policy forbid.
    pub(crate) fn overriding(base: &Arc<Self>, own: &KeyOverride, text: String) -> Result<Arc<Self>> {
        let overridden = PlanOverride { base: Arc::clone(base), text, is_unlimited: own.is_unlimited() };
        let mut plan = Self::new(base.policy.overridden(own)?);
        plan.bytes += allocated(overridden.text.capacity());
        if let Some(counts) = base.counts.get() {
            let _ = plan.counts.set(Box::new(Arc::clone(counts)));
        }
        Ok(Arc::new(Self { overridden: Some(overridden), ..plan }))
    }

    /// The same plan with a calendar that is `ahead` of the store's time. `None` if no limit follows the calendar.
    #[cfg(feature = "redis")]
    pub(crate) fn with_calendar_ahead(&self, ahead: i64) -> Option<Self> {
        self.rules.iter().find_map(|rule| rule.with_calendar_ahead(ahead))?;
        let mut plan = Self::new(self.policy.clone());
        for rule in &mut plan.rules {
            if let Some(follows) = rule.with_calendar_ahead(ahead) {
                *rule = follows;
            }
        }
        (plan.format, plan.overridden) = (Arc::clone(&self.format), self.overridden.clone());
        Some(plan)
    }

    /// The override that the store must have for the key while this plan is in force.
    #[inline]
    pub(crate) fn stored_override(&self) -> &str {
        self.overridden.as_ref().map_or("", |overridden| &overridden.text)
    }

    /// True if its key is not limited.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.overridden.as_ref().is_some_and(|overridden| overridden.is_unlimited)
    }

    /// The plan of its policy, without the override.
    pub(crate) fn base(plan: &Arc<Self>) -> &Arc<Self> {
        plan.overridden.as_ref().map_or(plan, |overridden| &overridden.base)
    }

    /// The limits of other releases, among those that count a key beside this plan. The limits of the policy without
    /// the override are not foreign.
    pub(crate) fn of_other_releases(&self, others: &[LimitTag]) -> Vec<String> {
        let own = self.overridden.as_ref().map_or(&[][..], |overridden| &overridden.base.format.tags);
        let foreign = others.iter().filter(|other| !own.iter().any(|own| own.is_same_limit(other)));
        foreign.map(ToString::to_string).collect()
    }

    fn new(policy: Policy) -> Self {
        let rules: SmallVec<[Rule; 2]> = policy.limits().iter().map(Rule::of).collect();
        let tags: Box<[LimitTag]> = policy.limits().iter().map(LimitTag::of).collect();
        let stored = StoredForm::new(&policy, &rules, &tags);
        let grace = rules.iter().map(Rule::grace).max().unwrap_or(0);
        let options = policy.options();
        let charges_denials = options.count_denied;
        let denial_writes = grace > 0 || charges_denials || options.block_for.is_some();
        let digest = blake3::hash(policy.name().as_bytes());
        let identity = u128::from_le_bytes(digest.as_bytes()[..16].try_into().unwrap_or_default());
        let format = Arc::new(StateFormat { identity, tags });
        let heap_bytes = policy.heap_bytes()
            + spilled(&rules)
            + allocated(size_of::<StateFormat>() + 16)
            + allocated(size_of_val(&*format.tags));
        let bytes = allocated(size_of::<Self>() + 16) + heap_bytes;
        let is_held = rules.iter().any(Rule::holds);
        let has_calendar = rules.iter().any(|rule| rule.calendar().is_some());
        let has_units = policy.limits().iter().any(|limit| limit.unit().is_some());
        Self {
            is_held,
            has_units,
            has_calendar,
            answers_by_state: policy.learning().is_none()
                && rules.len() == 1
                && !denial_writes
                && options.journal == 0
                && !has_calendar,
            takes_turns: policy.learning().is_none()
                && !policy.options().shadow
                && rules.iter().all(|rule| rule.meter().is_some()),
            is_simple: rules.len() == 1 && grace == 0 && policy.learning().is_none() && options.journal == 0,
            is_plain: !is_held && !has_units,
            lease: lease_of(&policy),
            level_life: policy.options().level_life(),
            near_limit: rules.first().map_or(0, |rule| (rule.capacity() / PARTS_OF_LIMIT) as i64),
            counts: OnceBox::new(),
            overridden: None,
            policy,
            rules,
            format,
            stored,
            charges_denials,
            denial_writes,
            grace,
            identity,
            bytes,
        }
    }

    /// The bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.stored.heap_bytes
    }

    /// The bytes that one more handle of a plan adds to a table: all of the plan if only few handles of it exist. The
    /// sum over a table is never less than the bytes of its plans, and hardly more if its entries share one.
    pub(crate) fn share(plan: &Arc<Self>) -> usize {
        plan.bytes() / (Arc::strong_count(plan) / FEW_HANDLES).max(1)
    }

    /// The views of the limits at `now`, for a call on an unused key.
    pub(crate) fn unused_views(&self, now: u64, amount: impl Fn(usize) -> Amount) -> OneOrMany<View> {
        let view = |(index, rule): (usize, &Rule)| amount(index).view(rule, &rule.fresh(), now, 0);
        self.rules.iter().enumerate().map(view).collect()
    }

    /// True if at least 80 % of the first limit is used.
    #[inline(always)]
    pub(crate) const fn is_near_first_limit(&self, view: &View) -> bool {
        view.left <= self.near_limit
    }

    /// True if at least 80 % of a limit is used. This includes the binding limit, which has the least left in proportion.
    #[inline(always)]
    pub(crate) fn is_near_limit(&self, views: &OneOrMany<View>) -> bool {
        match views {
            OneOrMany::One(view) => self.is_near_first_limit(view),
            OneOrMany::Many(views) => {
                let near = |(view, rule): (&View, &Rule)| view.left <= (rule.capacity() / PARTS_OF_LIMIT) as i64;
                views.iter().zip(&self.rules).any(near)
            }
        }
    }

    /// True if a denial may be repeated until its moment without a call to the store. The call would change nothing,
    /// and no unit comes back before that moment without notice.
    pub(crate) fn repeats_denials(&self) -> bool {
        !self.charges_denials && self.policy.options().journal == 0 && !self.is_held
    }

    /// True if a denial costs its caller something: it is charged, or begins a block.
    pub(crate) fn punishes_denials(&self) -> bool {
        self.charges_denials || self.policy.options().block_for.is_some()
    }

    /// How long a journal keeps an attempt: as long as it can matter to a limit or a block.
    pub(crate) fn journal_life(&self) -> u64 {
        let limits = self.policy.limits().iter().map(|limit| limit.period().micros());
        let block = self.policy.options().block_for.as_ref().map(|lengths| lengths.longest().micros());
        limits.chain(block).max().unwrap_or(0)
    }
}

/// The most units that a process may take in advance. One unit, or units with too short a life, save no calls.
fn lease_of(policy: &Policy) -> Option<LeaseTerms> {
    let units = policy.options().lease?.share_of(policy.limits());
    let life = policy.limits().iter().map(Limit::lease_life).min().unwrap_or(0);
    (units > 1 && life >= SHORTEST_LEASE).then_some(LeaseTerms { units, life })
}
