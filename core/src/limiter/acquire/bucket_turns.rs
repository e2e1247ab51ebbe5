//! The callers of one policy and key that have turns in the store, and the reuse of a turn that is given up.
//! docs/adr/0036 has the reasons.

use std::mem::swap;
use std::sync::Arc;
use std::time::Duration;

use crate::process::lock::Mutex;
use smallvec::SmallVec;

use crate::decision::{Decision, LimiterId};
use crate::plan::{Amount, Amounts, Plan};
use crate::store::request::{Answer, Charge, ChargedAmount, Operation, Source};

/// A turn in the store.
#[derive(Debug)]
pub(super) struct BucketTurn {
    plan: Arc<Plan>,
    answer: Answer,
    /// When its caller may go, by the time of the limiter.
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

    /// The operation that gives it back, if nothing was charged behind it.
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
    /// When it asked, by the time of the store.
    asked_at: u64,
    /// The cost that it named.
    cost: u64,
    /// The units that it takes. They may be fewer than its turn has charged.
    granted: u64,
    amounts: Amounts,
    turn: BucketTurn,
}

impl Sleeper {
    /// True if a turn that another caller gave up is an earlier one and has charged as much as this caller takes.
    fn can_use(&self, other: &BucketTurn) -> bool {
        let takes = |index| self.amounts.get(index).map_or(self.granted, |amount: &Amount| amount.units);
        other.due < self.turn.due
            && Arc::ptr_eq(&other.plan, &self.turn.plan)
            && other.charged().into_iter().enumerate().all(|(index, charged)| takes(index) <= charged)
    }
}

/// The turns of the callers of one policy and key.
#[derive(Debug, Default)]
pub(super) struct BucketTurns(Mutex<Turns>);

#[derive(Debug, Default)]
struct Turns {
    /// The callers that have asked for a turn, by their numbers.
    asking: Vec<u64>,
    /// The callers that have one, in the order of their turns.
    sleepers: Vec<Sleeper>,
    /// True if all turns belong to the limiter, because it closes.
    is_closed: bool,
}

impl Turns {
    fn remove(&mut self, number: u64) -> Option<Sleeper> {
        let at = self.sleepers.iter().position(|sleeper| sleeper.number == number).filter(|_| !self.is_closed)?;
        Some(self.sleepers.remove(at))
    }

    /// Forgets that a caller has asked. True if it had no answer yet.
    fn has_asked(&mut self, number: u64) -> bool {
        let at = self.asking.iter().position(|asking| *asking == number);
        at.map(|at| self.asking.swap_remove(at)).is_some()
    }
}

impl BucketTurns {
    /// The number of callers that have a turn.
    pub(super) fn len(&self) -> usize {
        self.0.lock().sleepers.len()
    }

    /// The number of callers that have a turn or have asked for one.
    pub(super) fn places(&self) -> usize {
        let turns = self.0.lock();
        turns.sleepers.len() + turns.asking.len()
    }

    /// Notes that a caller asks for a turn.
    pub(super) fn ask(&self, number: u64) {
        self.0.lock().asking.push(number);
    }

    /// Notes that a caller has its answer, or does not wait for it.
    pub(super) fn forget_asking(&self, number: u64) {
        self.0.lock().has_asked(number);
    }

    /// Adds the turn that a caller got. Returns it if the caller is gone.
    pub(super) fn add(&self, number: u64, cost: u64, turn: BucketTurn) -> Option<BucketTurn> {
        let mut turns = self.0.lock();
        if !turns.has_asked(number) && !turns.is_closed {
            return Some(turn);
        }
        let answer = &turn.answer;
        let (asked_at, granted, amounts) = (answer.now, answer.granted, answer.amounts().into());
        let sleeper = Sleeper { number, asked_at, cost, granted, amounts, turn };
        let at = turns.sleepers.partition_point(|other| other.turn.due <= sleeper.turn.due);
        turns.sleepers.insert(at, sleeper);
        None
    }

    /// The moment of a caller's turn.
    pub(super) fn due(&self, number: u64) -> Option<Duration> {
        self.of(number, |sleeper| sleeper.turn.due)
    }

    /// The part of Tidegate that granted the turn of a caller, and when the caller asked, by the time of the store.
    pub(super) fn granted(&self, number: u64) -> Option<(Source, u64)> {
        self.of(number, |sleeper| (sleeper.turn.answer.source, sleeper.asked_at))
    }

    fn of<T>(&self, number: u64, read: impl FnOnce(&Sleeper) -> T) -> Option<T> {
        self.0.lock().sleepers.iter().find(|sleeper| sleeper.number == number).map(read)
    }

    /// From now on no caller takes a turn or passes it on.
    pub(super) fn close(&self) {
        self.0.lock().is_closed = true;
    }

    /// Takes all turns, in their order.
    pub(super) fn take_all(&self) -> Vec<BucketTurn> {
        std::mem::take(&mut self.0.lock().sleepers).into_iter().map(|sleeper| sleeper.turn).collect()
    }

    /// The Decision of a caller when its turn has come.
    pub(super) fn take(&self, number: u64, limiter: LimiterId, key: &str) -> Option<Decision> {
        let Sleeper { cost, granted, amounts, turn, .. } = self.0.lock().remove(number)?;
        let mut answer = turn.answer.at_turn();
        answer.granted = granted;
        if !amounts.is_empty() {
            answer.rare.get_or_insert_default().amounts = amounts;
        }
        Some(Decision::new(limiter, turn.plan, key, cost, answer))
    }

    /// Gives up the turn of a caller. Returns a turn that no other caller can use.
    pub(super) fn give_up(&self, number: u64) -> Option<BucketTurn> {
        let sleeper = self.0.lock().remove(number)?;
        Some(self.pass_on(sleeper.turn))
    }

    /// Passes a turn on to the next caller that can use it, the turn of that one to the next but one, and so on.
    /// Returns the turn that is left.
    pub(super) fn pass_on(&self, mut turn: BucketTurn) -> BucketTurn {
        let sleepers = &mut self.0.lock().sleepers;
        for sleeper in sleepers.iter_mut() {
            if sleeper.can_use(&turn) {
                swap(&mut sleeper.turn, &mut turn);
            }
        }
        sleepers.sort_by_key(|sleeper| sleeper.turn.due);
        turn
    }
}
