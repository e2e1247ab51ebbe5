//! Counts the decisions of a limiter by policy and class.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

use super::cells::{CLASSES, PolicyCounts, leave_only_this_thread};
use super::denied_keys::DeniedKeys;
use crate::plan::Plan;
use crate::store::request::{Answer, Operation, SimpleAnswer, Source};

/// The number of policies of a limiter that are counted separately. Decisions of all others are counted together, under
/// [`OTHER_POLICIES`], because a program may build notations from the input of its clients.
pub const MAX_COUNTED_POLICIES: usize = 1_000;
/// The name under which policies beyond [`MAX_COUNTED_POLICIES`] are counted.
pub const OTHER_POLICIES: &str = "(other)";

/// The Decisions of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PolicyStats {
    /// Decisions that allowed, also those of a shadow policy that would have denied, and every charge.
    pub allowed: u64,
    /// Decisions that a limit denied.
    pub denied: u64,
    /// Denials because the store failed (`on_store_error: closed`).
    pub unavailable: u64,
    /// Admitted decisions that found 80 % or more of the binding limit used, their own units included.
    pub near_limit: u64,
    /// Allowed decisions that a shadow policy would have denied.
    pub shadow_denied: u64,
    /// All of them, by the source of the answer.
    pub sources: SourceCounts,
}

/// Decisions by [`Source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceCounts {
    /// The store.
    pub store: u64,
    /// A denial that was known in this process.
    pub deny_cache: u64,
    /// Units that this process took in advance.
    pub lease: u64,
    /// `on_store_error`.
    pub fallback: u64,
}

impl SourceCounts {
    /// Each source with its count.
    #[must_use]
    pub const fn by_source(&self) -> [(Source, u64); 4] {
        [
            (Source::Store, self.store),
            (Source::DenyCache, self.deny_cache),
            (Source::Lease, self.lease),
            (Source::Fallback, self.fallback),
        ]
    }
}

/// The class of a decision: its source, a bit for admission, and one bit more. If it was admitted, that bit means that
/// it is near a limit. Otherwise it means that the store was missing.
const ADMITTED: usize = 2;
const BITS: usize = 2;
const _: () = assert!(4 << BITS == CLASSES, "the classes of four sources");

#[inline(always)]
const fn class(source: Source, admitted: bool, bit: bool) -> usize {
    ((source as usize) << BITS) | (admitted as usize * ADMITTED) | bit as usize
}

impl PolicyStats {
    /// Adds the counts of all classes. `shadow` is true if the policy never denies.
    fn add(&mut self, shadow: bool, sums: &[u64; CLASSES]) {
        for (class, count) in sums.iter().enumerate() {
            let bit = class & 1 == 1;
            match class & ADMITTED != 0 {
                true => {
                    self.allowed += count;
                    self.near_limit += if bit { *count } else { 0 };
                }
                false if shadow => {
                    self.allowed += count;
                    self.shadow_denied += count;
                }
                false if bit => self.unavailable += count,
                false => self.denied += count,
            }
            let sources = &mut self.sources;
            let source = [&mut sources.store, &mut sources.deny_cache, &mut sources.lease, &mut sources.fallback];
            if let Some(of_source) = source.into_iter().nth(class >> BITS) {
                *of_source += count;
            }
        }
    }
}

/// The number of the next limiter.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A policy is known by the digest of its name. A shadow policy is counted apart, because a reload may change that.
type PolicyKey = (u128, bool);

/// The policies that were counted so far. Without a lock, because a forked child may begin while a thread of its parent adds one.
#[derive(Debug, Clone)]
struct CountedPolicies {
    by_key: HashMap<PolicyKey, (Arc<str>, Arc<PolicyCounts>)>,
    /// The counts of policies that are not in `by_key`: those that limit, and those in shadow.
    other: [Arc<PolicyCounts>; 2],
}

/// The counts of a limiter, by policy and class.
pub(crate) struct DecisionCounts {
    /// Identifies the limiter that owns the counts of a plan. No other limiter of this process has the number.
    limiter: u32,
    policies: ArcSwap<CountedPolicies>,
    /// The keys that were denied, if the limiter publishes them.
    pub(crate) denied_keys: OnceLock<DeniedKeys>,
    /// Called with each refusal, if the limiter logs them.
    pub(crate) on_refusal: OnceLock<AnswerListener>,
    /// Called with each admission, if the limiter looks for keys that are near their limits.
    pub(crate) on_admission: OnceLock<AnswerListener>,
}

/// Takes a check or a charge: its plan, its key and its answer.
pub(crate) type AnswerListener = Box<dyn Fn(&Arc<Plan>, &str, &Answer) + Send + Sync>;

/// Shows only the number of the limiter.
impl fmt::Debug for DecisionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionCounts").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

impl Default for DecisionCounts {
    fn default() -> Self {
        let limiter = NEXT.fetch_add(1, Ordering::Relaxed);
        let other = std::array::from_fn(|_| Arc::new(PolicyCounts::new(limiter)));
        let policies = ArcSwap::from_pointee(CountedPolicies { by_key: HashMap::new(), other });
        Self {
            limiter,
            policies,
            denied_keys: OnceLock::new(),
            on_refusal: OnceLock::new(),
            on_admission: OnceLock::new(),
        }
    }
}

impl DecisionCounts {
    /// Counts the answer to a check of one limit.
    #[inline(always)]
    pub(crate) fn count_simple(&self, plan: &Arc<Plan>, key: &str, answer: &SimpleAnswer) {
        let is_near = answer.applied && plan.is_near_first_limit(&answer.view);
        if answer.applied {
            if let Some(listener) = self.on_admission.get() {
                listener(plan, key, &answer.clone().into());
            }
        } else if !plan.policy.options().shadow && self.hears_refusals() {
            self.note_refusal(plan, key, &answer.clone().into());
        }
        self.add(plan, class(Source::Store, answer.applied, is_near));
    }

    /// Counts the answer to a check.
    #[inline(always)]
    pub(crate) fn count_check(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        let bit = if answer.applied {
            self.note_admission(plan, key, answer);
            plan.is_near_limit(&answer.views)
        } else {
            // A shadow denies no call.
            if !plan.policy.options().shadow {
                self.note_refusal(plan, key, answer);
            }
            answer.unavailable
        };
        self.add(plan, class(answer.source, answer.applied, bit));
    }

    #[inline(always)]
    fn note_admission(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        if let Some(listener) = self.on_admission.get() {
            listener(plan, key, answer);
        }
    }

    #[inline]
    fn hears_refusals(&self) -> bool {
        self.denied_keys.get().is_some() || self.on_refusal.get().is_some()
    }

    #[cold]
    fn note_refusal(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        if let Some(denied) = self.denied_keys.get() {
            denied.note(plan.policy.name(), key);
        }
        if let Some(listener) = self.on_refusal.get() {
            listener(plan, key, answer);
        }
    }

    /// Counts the answer to an operation, if that is a decision about units: a check or a charge.
    #[inline(always)]
    pub(crate) fn count(&self, plan: &Arc<Plan>, key: &str, operation: &Operation, answer: &Answer) {
        match operation {
            operation if operation.is_check() => self.count_check(plan, key, answer),
            Operation::Charge { .. } => self.count_charge(plan, key, answer),
            _ => {}
        }
    }

    /// The limits never refuse a charge.
    fn count_charge(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        let bit = if answer.unavailable {
            true
        } else {
            self.note_admission(plan, key, answer);
            plan.is_near_limit(&answer.views)
        };
        self.add(plan, class(answer.source, !answer.unavailable, bit));
    }

    #[inline(always)]
    fn add(&self, plan: &Plan, class: usize) {
        match plan.counts.get() {
            Some(counts) if counts.limiter() == self.limiter => counts.add(class),
            _ => self.add_by_name(plan, class),
        }
    }

    /// For a plan that this limiter has not counted yet, or that another limiter counted first.
    #[cold]
    fn add_by_name(&self, plan: &Plan, class: usize) {
        self.counts_of(plan).add(class);
    }

    /// Counts denials that a host has repeated by itself.
    pub(crate) fn count_repeated(&self, plan: &Plan, times: u64) {
        self.counts_of(plan).add_counted(class(Source::DenyCache, false, false), times);
    }

    /// Gives a policy its place before it is used, so that policies with a name come before notations that are written in place.
    pub(crate) fn begin(&self, plan: &Plan) {
        self.counts_of(plan);
    }

    fn counts_of(&self, plan: &Plan) -> Arc<PolicyCounts> {
        let (name, shadow) = (plan.policy.name(), plan.policy.options().shadow);
        let key = (plan.identity, shadow);
        let known = |policies: &CountedPolicies| match policies.by_key.get(&key) {
            Some((_, counts)) => Some(Arc::clone(counts)),
            None if policies.by_key.len() >= MAX_COUNTED_POLICIES => {
                Some(Arc::clone(&policies.other[usize::from(shadow)]))
            }
            None => None,
        };
        let counts = known(&self.policies.load()).unwrap_or_else(|| {
            let (name, made) = (Arc::<str>::from(name), Arc::new(PolicyCounts::new(self.limiter)));
            self.policies.rcu(|policies| {
                let mut policies = CountedPolicies::clone(policies);
                if known(&policies).is_none() {
                    policies.by_key.insert(key, (Arc::clone(&name), Arc::clone(&made)));
                }
                policies
            });
            // Another thread may have been first.
            known(&self.policies.load()).unwrap_or(made)
        });
        // If another limiter has counted the plan first, each call comes here.
        let _ = plan.counts.set(Box::new(Arc::clone(&counts)));
        counts
    }

    /// The counts of all policies, by name.
    pub(crate) fn read(&self) -> BTreeMap<String, PolicyStats> {
        let policies = self.policies.load();
        let mut stats = BTreeMap::<String, PolicyStats>::new();
        for ((_, shadow), (name, counts)) in &policies.by_key {
            stats.entry((**name).to_owned()).or_default().add(*shadow, &counts.sums());
        }
        for (counts, shadow) in policies.other.iter().zip([false, true]) {
            let sums = counts.sums();
            if sums.iter().any(|sum| *sum > 0) {
                stats.entry(OTHER_POLICIES.to_owned()).or_default().add(shadow, &sums);
            }
        }
        stats
    }

    /// The number of the limiter in this process.
    pub(crate) const fn limiter(&self) -> u32 {
        self.limiter
    }

    /// In a forked child: counts its own decisions from now on.
    pub(crate) fn forked(&self) {
        leave_only_this_thread();
        let policies = self.policies.load();
        policies.by_key.values().map(|(_, counts)| counts).chain(&policies.other).for_each(|counts| counts.reset());
    }
}
