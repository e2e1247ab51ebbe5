//! The callers of one policy and key that have turns in the store, and what becomes of a turn that is given up. docs/adr/0036 has
//! the reasons.

use std::mem::swap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::decision::{Decision, LimiterId};
use crate::plan::{Amount, Amounts, Plan};
use crate::store::request::{Answer, Charge, ChargedAmount, Operation};

/// A turn in the store.
#[derive(Debug)]
pub(super) struct BucketTurn {
    plan: Arc<Plan>,
    answer: Answer,
    /// When its caller goes, by the time of the limiter.
    due: Duration,
}

impl BucketTurn {
    /// The turn of a Decision that has one.
    pub(super) fn new(decision: Decision, due: Duration) -> Self {
        Self { plan: Arc::clone(decision.plan()), answer: decision.into_answer(), due }
    }

    /// The units that it has charged of each limit.
    fn charged(&self) -> SmallVec<[u64; 2]> {
        (0..self.plan.rules.len()).map(|index| self.answer.charged(index)).collect()
    }

    /// What gives it back, where nothing was charged behind it.
    pub(super) fn refund(self) -> (Arc<Plan>, Operation) {
        let units = self.answer.granted;
        let back = |units| ChargedAmount { back: units, charged: units };
        let amounts = self.charged().into_iter().map(back).collect();
        let limits = self.answer.charged_limits(&self.plan);
        let charge = Charge { is_last: true, amounts, limits, ..self.answer.at_turn().charge() };
        (self.plan, Operation::GiveBack { units, charge: Arc::new(charge) })
    }
}

/// A caller that sleeps until its turn.
#[derive(Debug)]
struct Sleeper {
    number: u64,
    /// What it takes, which may be less than its turn has charged.
    granted: u64,
    amounts: Amounts,
    turn: BucketTurn,
}

impl Sleeper {
    /// Whether a turn that another caller gave up is an earlier one that has charged as much as this caller takes.
    fn can_use(&self, other: &BucketTurn) -> bool {
        let takes = |index| self.amounts.get(index).map_or(self.granted, |amount: &Amount| amount.units);
        other.due < self.turn.due
            && Arc::ptr_eq(&other.plan, &self.turn.plan)
            && other.charged().into_iter().enumerate().all(|(index, charged)| takes(index) <= charged)
    }
}

/// The turns of the callers of one policy and key, in their order.
#[derive(Debug, Default)]
pub(super) struct BucketTurns(Mutex<Vec<Sleeper>>);

impl BucketTurns {
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn add(&self, number: u64, turn: BucketTurn) {
        let answer = &turn.answer;
        let sleeper = Sleeper { number, granted: answer.granted, amounts: answer.amounts().into(), turn };
        let mut sleepers = self.0.lock();
        let at = sleepers.partition_point(|other| other.turn.due <= sleeper.turn.due);
        sleepers.insert(at, sleeper);
    }

    /// When the turn of a caller is.
    pub(super) fn due(&self, number: u64) -> Option<Duration> {
        self.0.lock().iter().find(|sleeper| sleeper.number == number).map(|sleeper| sleeper.turn.due)
    }

    fn remove(&self, number: u64) -> Option<Sleeper> {
        let mut sleepers = self.0.lock();
        let at = sleepers.iter().position(|sleeper| sleeper.number == number)?;
        Some(sleepers.remove(at))
    }

    /// The Decision of a caller whose turn has come.
    pub(super) fn take(&self, number: u64, limiter: LimiterId, key: &str, cost: u64) -> Option<Decision> {
        let Sleeper { granted, amounts, turn, .. } = self.remove(number)?;
        let mut answer = turn.answer.at_turn();
        answer.granted = granted;
        if !amounts.is_empty() {
            answer.rare.get_or_insert_default().amounts = amounts;
        }
        Some(Decision::new(limiter, turn.plan, key, cost, answer))
    }

    /// A caller gives its turn up. Returns the turn that no other caller can use.
    pub(super) fn give_up(&self, number: u64) -> Option<BucketTurn> {
        let sleeper = self.remove(number)?;
        Some(self.pass_on(sleeper.turn))
    }

    /// Passes a turn on to the next caller that can use it, the turn of that one to the next but one, and so on. Returns the turn that
    /// is left.
    pub(super) fn pass_on(&self, mut turn: BucketTurn) -> BucketTurn {
        let mut sleepers = self.0.lock();
        for sleeper in sleepers.iter_mut() {
            if sleeper.can_use(&turn) {
                swap(&mut sleeper.turn, &mut turn);
            }
        }
        sleepers.sort_by_key(|sleeper| sleeper.turn.due);
        turn
    }
}
