//! Units that the store has charged, and that this process may spend for a while.

use std::sync::Arc;

use crate::algorithm::{LeaseTerms, Rule, View};
use crate::plan::Plan;
use crate::store::request::{Answer, Views};

/// The part of a life that is left out, because clocks drift.
const DRIFT_PART: u64 = 64;

/// Units that the store has charged, and that this process may spend.
pub(super) struct Block {
    pub(super) granted: u64,
    pub(super) left: u64,
    /// When the store charged them, by its time.
    pub(super) taken_at: u64,
    pub(super) life: u64,
    /// When the answer was received, and until when they may be spent, by the time of this process.
    pub(super) received: u64,
    pub(super) until: u64,
    /// What the store said of the limits then.
    pub(super) views: Views,
}

impl Block {
    /// The block of a request that was sent at `sent` and answered at `now`; `None` when nothing was granted.
    pub(super) fn granted(plan: &Plan, terms: LeaseTerms, answer: &Answer, (sent, now): (u64, u64)) -> Option<Self> {
        let ends = |(rule, view): (&Rule, &View)| rule.lease_ends(view, answer.now);
        let ends = plan.rules.iter().zip(answer.views.iter()).filter_map(ends).min();
        let usable = ends.map_or(terms.life, |ends| terms.life.min(ends.saturating_sub(answer.now)));
        (answer.applied && answer.granted > 0).then(|| Self {
            granted: answer.granted,
            left: answer.granted,
            taken_at: answer.now,
            life: terms.life,
            received: now,
            until: sent + (usable - usable.div_ceil(DRIFT_PART)),
            views: answer.views.clone(),
        })
    }

    /// What is left of it.
    pub(super) fn unspent(&self, plan: &Arc<Plan>) -> Unspent {
        let terms = LeaseTerms { units: self.left, life: self.life };
        Unspent { plan: Arc::clone(plan), terms, taken_at: self.taken_at }
    }
}

/// Units that go back.
#[derive(Debug, Clone)]
pub(super) struct Unspent {
    pub(super) plan: Arc<Plan>,
    pub(super) terms: LeaseTerms,
    pub(super) taken_at: u64,
}
