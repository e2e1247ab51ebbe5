//! Units that the store has charged, and that this process may spend for a while.

use std::sync::Arc;

use crate::algorithm::{LeaseTerms, Rule, View};
use crate::plan::Plan;
use crate::store::request::{Answer, Charge, Views};

/// The part of a life that is left out, because clocks drift.
const DRIFT_PART: u64 = 64;

/// A charge of the store. Units are spent from it.
#[derive(Clone, Copy)]
pub(super) struct LeaseCharge {
    /// Names the block in the answers to checks that spend from it.
    pub(super) block: u32,
    /// When the store charged the units, by its time.
    pub(super) at: u64,
    life: u64,
    generation: u64,
    connection: u64,
}

impl LeaseCharge {
    /// The facts that the store needs to take units back.
    fn charge(&self, plan: &Plan) -> Arc<Charge> {
        let &Self { at, life, generation, connection, .. } = self;
        Arc::new(Charge { life, generation, connection, ..Charge::at(plan, at) })
    }

    /// Units of it that go back to the store.
    pub(super) fn unspent(&self, plan: &Arc<Plan>, units: u64) -> Unspent {
        Unspent { plan: Arc::clone(plan), units, charge: self.charge(plan) }
    }
}

/// Units that the store has charged, and that this process may spend.
pub(super) struct Block {
    pub(super) charge: LeaseCharge,
    pub(super) granted: u64,
    pub(super) left: u64,
    /// When the answer was received, and until when they may be spent, by the time of this process.
    pub(super) received: u64,
    pub(super) until: u64,
    /// The views of the limits in that answer.
    pub(super) views: Views,
}

impl Block {
    /// The block of a request that was sent at `sent` and answered at `now`. `None` if nothing was granted.
    pub(super) fn granted(
        plan: &Plan,
        number: u64,
        terms: LeaseTerms,
        answer: &Answer,
        (sent, now): (u64, u64),
    ) -> Option<Self> {
        let ends = |(rule, view): (&Rule, &View)| match answer.calendar_ahead() {
            0 => rule.lease_ends(view, answer.now),
            ahead => rule.with_calendar_ahead(ahead).as_ref().unwrap_or(rule).lease_ends(view, answer.now),
        };
        let ends = plan.rules.iter().zip(answer.views.iter()).filter_map(ends).min();
        let usable = ends.map_or(terms.life, |ends| terms.life.min(ends.saturating_sub(answer.now)));
        let (generation, connection) = answer.rare.as_ref().map_or((0, 0), |rare| (rare.generation, rare.connection));
        let charge =
            LeaseCharge { block: (number as u32).max(1), at: answer.now, life: terms.life, generation, connection };
        (answer.applied && answer.granted > 0).then(|| Self {
            charge,
            granted: answer.granted,
            left: answer.granted,
            received: now,
            until: sent + (usable - usable.div_ceil(DRIFT_PART)),
            views: answer.views.clone(),
        })
    }

    /// The units that are left of it.
    pub(super) fn unspent(&self, plan: &Arc<Plan>) -> Unspent {
        self.charge.unspent(plan, self.left)
    }

    /// How far the store's clock is ahead of this process's, at least.
    pub(super) const fn ahead(&self) -> i64 {
        self.charge.at.wrapping_sub(self.received) as i64
    }
}

/// Units that go back to the store.
#[derive(Debug, Clone)]
pub(super) struct Unspent {
    pub(super) plan: Arc<Plan>,
    pub(super) units: u64,
    pub(super) charge: Arc<Charge>,
}
