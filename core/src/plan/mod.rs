//! A policy made ready to be applied: its rules, and the layout of its stored value.

mod conversion;
mod layout;
mod reply_bound;
mod rule;
mod script_arguments;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::{LeaseTerms, Rule, View};
use crate::allocation::{allocated, spilled};
use crate::one_or_many::OneOrMany;
use crate::policy::{DerivedValue, Limit, Period, Policy, SHORTEST_LEASE};

pub(crate) use layout::{Field, Form, Layout, LimitTag, MOMENT_WIDTH};
pub(crate) use reply_bound::MAX_METADATA;
pub(crate) use script_arguments::{CommonLoop, ScriptArguments};

/// Handles of a plan that exist without any table: the policy's own, a caller's, those of the plan cache.
const FEW_HANDLES: usize = 4;

/// What usage in memory belongs to, and how its states are read: plans that agree in both share it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StateFormat {
    /// See [`Plan::identity`].
    pub(crate) identity: u128,
    /// The identities of the limits, in order.
    pub(crate) tags: Box<[LimitTag]>,
}

/// A policy, its rules and its layout; made once, shared by every call.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) policy: Policy,
    pub(crate) rules: SmallVec<[Rule; 2]>,
    /// Marks usage in memory as this policy's.
    pub(crate) format: Arc<StateFormat>,
    pub(crate) layouts: Vec<Layout>,
    pub(crate) header: Vec<u8>,
    /// Of the narrow form, where the policy has it.
    pub(crate) narrow_header: Option<Vec<u8>>,
    pub(crate) full_header: Vec<u8>,
    /// Whether a denial may change what is stored.
    pub(crate) denial_writes: bool,
    /// How long a key is kept after all its states have ended; only for buckets with `initial`.
    pub(crate) grace: u64,
    pub(crate) script_arguments: ScriptArguments,
    /// The most bytes that the script returns of a value, and of a journal.
    pub(crate) max_value: usize,
    pub(crate) max_journal: usize,
    /// The most that a process takes in advance, of a policy that leases and whose units can be spent later.
    pub(crate) lease: Option<LeaseTerms>,
    /// Identifies the policy in stores: a digest of its name.
    pub(crate) identity: u128,
    /// The bytes that it takes.
    bytes: usize,
}

impl Plan {
    /// The plan of a policy, of a type that `policy` does not know. It is made once and kept with the policy and its
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

    fn new(policy: Policy) -> Self {
        let rules: SmallVec<[Rule; 2]> = policy.limits().iter().map(rule::rule_of).collect();
        let tags: Box<[LimitTag]> = policy.limits().iter().map(LimitTag::of).collect();
        let layouts: Vec<Layout> = rules.iter().zip(&tags).map(|(rule, tag)| Layout::of(rule, tag)).collect();
        let header = layout::header(&tags, &layouts, Form::Compact);
        let narrow_header = layout::narrow_header(&tags, &layouts);
        let full_header = layout::header(&tags, &layouts, Form::Full);
        let grace = rules.iter().map(Rule::grace).max().unwrap_or(0);
        let options = policy.options();
        let denial_writes = grace > 0 || options.count_denied || options.block_for.is_some();
        let script_arguments =
            ScriptArguments::new(&rules, &tags, &layouts, &header, narrow_header.as_deref(), &full_header);
        let digest = blake3::hash(policy.name().as_bytes());
        let identity = u128::from_le_bytes(digest.as_bytes()[..16].try_into().unwrap_or_default());
        let format = Arc::new(StateFormat { identity, tags });
        let heap_bytes = policy.heap_bytes()
            + spilled(&rules)
            + allocated(size_of::<StateFormat>() + 16)
            + allocated(size_of_val(&*format.tags))
            + allocated(layouts.capacity() * size_of::<Layout>())
            + allocated(header.capacity())
            + narrow_header.as_ref().map_or(0, |header| allocated(header.capacity()))
            + allocated(full_header.capacity())
            + script_arguments.heap_bytes();
        let bytes = allocated(size_of::<Self>() + 16) + heap_bytes;
        Self {
            max_value: reply_bound::max_value(&policy),
            max_journal: reply_bound::max_journal(&policy),
            lease: lease_of(&policy),
            policy,
            rules,
            format,
            layouts,
            header,
            narrow_header,
            full_header,
            denial_writes,
            grace,
            script_arguments,
            identity,
            bytes,
        }
    }

    /// The bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What one more handle of a plan adds to the bytes of a table: all of the plan where only few handles of it exist.
    /// The sum over a table is never less than its plans take, and hardly more where its entries share one.
    pub(crate) fn share(plan: &Arc<Self>) -> usize {
        plan.bytes / (Arc::strong_count(plan) / FEW_HANDLES).max(1)
    }

    /// What the limits say at `now` of a check of `cost` on an unused key.
    pub(crate) fn unused_views(&self, now: u64, cost: u64) -> OneOrMany<View> {
        self.rules.iter().map(|rule| rule.view(&rule.fresh(), now, cost, 0)).collect()
    }

    /// Whether a key has two Redis keys beside its value: the chunks of a log, and a journal.
    pub(crate) fn has_companions(&self) -> bool {
        self.policy.options().journal > 0 || self.rules.iter().any(|rule| matches!(rule, Rule::SlidingLog(_)))
    }

    /// Whether a denial may be repeated until its moment without a call to the store: the call would change nothing, and
    /// no unit comes back before that moment without notice.
    pub(crate) fn repeats_denials(&self) -> bool {
        let options = self.policy.options();
        !options.count_denied
            && options.journal == 0
            && !self.rules.iter().any(|rule| matches!(rule, Rule::Concurrency(_)))
    }

    /// How long a journal keeps an attempt: as long as it can matter to a limit or a block.
    pub(crate) fn journal_life(&self) -> u64 {
        let limits = self.policy.limits().iter().map(|limit| limit.period().micros());
        let block = self.policy.options().block_for.map(Period::micros);
        limits.chain(block).max().unwrap_or(0)
    }
}

/// The most that a process may take of a policy in advance. One unit, or one that lives too short, saves no calls.
fn lease_of(policy: &Policy) -> Option<LeaseTerms> {
    let units = policy.options().lease?.share_of(policy.limits());
    let life = policy.limits().iter().map(Limit::lease_life).min().unwrap_or(0);
    (units > 1 && life >= SHORTEST_LEASE).then_some(LeaseTerms { units, life })
}
