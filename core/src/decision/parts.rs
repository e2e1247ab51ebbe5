//! The memory of a Decision. Callers move a Decision often, and copying fresh data stalls the CPU. So its parts are on the heap,
//! and a move copies only their address. Nearly always this allocates nothing: a dropped Decision leaves its parts in a cache of
//! its thread, with their handle of the plan, and the next Decision of that plan on the thread reuses them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use compact_str::CompactString;

use super::{Decision, LimiterId, Settlement};
use crate::plan::Plan;
use crate::plan::plan_cache::{PlanHandle, PlanSlots};
use crate::store::request::{Answer, SimpleAnswer};

thread_local! {
    static UNUSED: PlanSlots<Box<DecisionParts>> = const { PlanSlots::new() };
}

/// The parts of a Decision.
pub(super) struct DecisionParts {
    pub(super) plan: Arc<Plan>,
    pub(super) key: CompactString,
    pub(super) cost: u64,
    pub(super) answer: Answer,
    /// One for each entry of a `check_all`.
    pub(super) decisions: Option<Arc<[Decision]>>,
    pub(super) limiter: LimiterId,
    pub(super) settlement: Settlement,
}

impl DecisionParts {
    #[cold]
    fn of(plan: Arc<Plan>) -> Box<Self> {
        Box::new(Self {
            plan,
            key: CompactString::default(),
            cost: 0,
            answer: Answer::default(),
            decisions: None,
            limiter: LimiterId::ELSEWHERE,
            settlement: Settlement::default(),
        })
    }

    /// True if something has to be dropped before they are used again.
    #[inline(always)]
    fn own_memory(&self) -> bool {
        self.answer.owns_memory()
            || self.key.is_heap_allocated()
            || self.decisions.is_some()
            || self.settlement.is_shared()
    }

    #[inline(never)]
    fn release(&mut self) {
        self.key = CompactString::default();
        self.answer = Answer::default();
        self.decisions = None;
        self.settlement = Settlement::default();
    }
}

/// The parts of one Decision.
pub(super) struct KeptParts(Option<Box<DecisionParts>>);

impl KeptParts {
    /// Unused parts of this plan from the cache of the thread, if there are any.
    #[inline(always)]
    fn unused(plan: &Arc<Plan>) -> Option<Box<DecisionParts>> {
        // The cache of a thread that is ending is gone.
        let unused = UNUSED.try_with(|unused| unused.slot(Arc::as_ptr(plan).cast()).take()).ok().flatten();
        unused.filter(|unused| Arc::ptr_eq(&unused.plan, plan))
    }

    #[inline(always)]
    pub(super) fn new(limiter: LimiterId, plan: Arc<Plan>, key: CompactString, cost: u64, answer: Answer) -> Self {
        let mut parts = match Self::unused(&plan) {
            Some(parts) => {
                drop(PlanHandle::new(plan));
                parts
            }
            None => DecisionParts::of(plan),
        };
        (parts.key, parts.cost, parts.limiter, parts.answer) = (key, cost, limiter, answer);
        Self(Some(parts))
    }

    /// The same for the answer of one limit. Each number is written directly to its place.
    #[inline(always)]
    pub(super) fn of_simple(limiter: LimiterId, plan: &Arc<Plan>, key: &str, cost: u64, answer: &SimpleAnswer) -> Self {
        let mut parts = Self::unused(plan).unwrap_or_else(|| DecisionParts::of(Arc::clone(plan)));
        parts.key = CompactString::from(key);
        (parts.cost, parts.limiter) = (cost, limiter);
        parts.answer.become_simple(answer);
        Self(Some(parts))
    }
}

impl Deref for KeptParts {
    type Target = DecisionParts;

    #[inline(always)]
    fn deref(&self) -> &DecisionParts {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only `drop` takes the parts out"))
    }
}

impl DerefMut for KeptParts {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut DecisionParts {
        self.0.as_mut().unwrap_or_else(|| unreachable!("only `drop` takes the parts out"))
    }
}

impl Drop for KeptParts {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut parts) = self.0.take() {
            if parts.own_memory() {
                parts.release();
            }
            let _ = UNUSED.try_with(|unused| unused.slot(Arc::as_ptr(&parts.plan).cast()).replace(Some(parts)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::{CheckOptions, Decision, Limiter, ManualClock};

    /// A Decision for a key that nothing has used, without the name of the key.
    fn fresh(limiter: &Limiter, key: &str) -> String {
        format!("{:?}", limiter.check("own", key).expect("a Decision")).replace(key, "KEY")
    }

    /// Decisions with everything that one may have beside the answer of one limit.
    fn dirty(limiter: &Limiter, key: &str) -> Vec<Decision> {
        let charged = limiter.charge("own", key, 9).expect("a charge");
        let denied = limiter.check("own", key).expect("a denial");
        let named = limiter.check("own", &"k".repeat(60)).expect("a Decision");
        limiter.block("own", "blocked", Duration::from_secs(60)).expect("a block");
        let blocked = limiter.check("own", "blocked").expect("a denial by a block");
        let options = CheckOptions { cost: 2, partial: true, ..CheckOptions::default() };
        let part = limiter.check_with("own", "partial", &options).expect("a part");
        let all = limiter.check_all([("own", "a", 1), ("own", "b", 1)]).expect("several");
        assert!(charged.limits().any(|limit| limit.over > 0) && !denied.allowed() && blocked.next_after().is_some());
        vec![charged.clone(), charged, denied, named, blocked, part, all]
    }

    #[test]
    fn a_decision_has_nothing_of_the_one_whose_parts_it_takes() {
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_700_000_000)));
        let builder = Limiter::builder().clock(clock).policy("own", "gcra 3/minute");
        let limiter = builder.and_then(crate::Builder::build).expect("a limiter");
        let elsewhere = limiter.clone();
        let expected = std::thread::spawn(move || fresh(&elsewhere, "another")).join().expect("a thread ends");
        for (number, decision) in dirty(&limiter, "used").into_iter().enumerate() {
            drop(decision);
            assert_eq!(fresh(&limiter, &format!("fresh{number}")), expected, "after the Decision number {number}");
        }
    }
}
