//! A Decision is settled once, in the process that got it.

use std::sync::Arc;

use super::caller::User;
use super::{LimiterCore, valid_cost};
use crate::algorithm::{MAX_SAFE_INTEGER, Rule};
use crate::decision::{Decision, LimiterId};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::Algorithm;
use crate::store::request::{Charge, Operation, Source};

/// What the entries of a Decision should have consumed.
#[derive(Debug, Clone, Copy)]
pub(super) enum ActualCosts<'a> {
    One(u64),
    /// `None` leaves an entry as it is.
    Each(&'a [Option<u64>]),
}

impl ActualCosts<'_> {
    /// What an entry should have consumed. One number says what the work has cost: it is not for entries that count something
    /// else, such as the request itself.
    fn of(self, entries: &[Decision], index: usize) -> Option<u64> {
        match self {
            Self::Each(costs) => costs.get(index).copied().flatten(),
            Self::One(cost) => {
                let is_meant = entries[index].cost() != 1 || entries.iter().all(|entry| entry.cost() == 1);
                is_meant.then_some(cost)
            }
        }
    }

    /// # Errors
    /// `cost_invalid`.
    fn check(self, entries: &[Decision]) -> Result<()> {
        match self {
            Self::One(cost) => valid_actual(cost),
            Self::Each(costs) if costs.len() == entries.len() => {
                costs.iter().flatten().try_for_each(|cost| valid_actual(*cost))
            }
            Self::Each(costs) => Err(Error::new(
                ErrorKind::CostInvalid,
                format!(
                    "settle was given {} numbers for a Decision of {} entries: give one for each",
                    costs.len(),
                    entries.len()
                ),
            )),
        }
    }
}

/// The entries of a Decision that are being settled.
struct Settling<'a> {
    entries: &'a [Decision],
    actual: ActualCosts<'a>,
    begun: usize,
}

impl<'a> Settling<'a> {
    /// # Errors
    /// `cost_invalid`; `config_invalid` for a Decision of another limiter or process, and for one that was settled.
    fn begin(core: &LimiterCore, decision: &'a Decision, actual: ActualCosts<'a>) -> Result<Self> {
        core.open()?;
        let parts = decision.decisions();
        let entries = if parts.is_empty() { std::slice::from_ref(decision) } else { parts };
        actual.check(entries)?;
        for entry in entries {
            is_of(core, entry)?;
        }
        // Dropping it takes back what it has begun.
        let mut settling = Self { entries: &[], actual, begun: 0 };
        for (index, entry) in entries.iter().enumerate() {
            if !entry.settlement().begin() {
                return Err(Error::config(format!(
                    "this Decision about {:?} was settled before: a Decision is settled once",
                    entry.policy()
                )));
            }
            settling.entries = &entries[..=index];
        }
        Ok(settling)
    }

    /// The next entry for which the store has something to do, and the policy that is in force for it.
    fn next(&mut self, core: &LimiterCore) -> Option<(&'a Decision, Arc<Plan>, Operation)> {
        while let Some(entry) = self.entries.get(self.begun) {
            self.begun += 1;
            let Some(actual) = self.actual.of(self.entries, self.begun - 1) else { continue };
            let plan = core.policies.current(entry.plan());
            // Units that are held are given back by the hold.
            if plan.rules.iter().all(|rule| matches!(rule, Rule::Concurrency(_))) {
                continue;
            }
            let charge = || Arc::new(entry.charge(&plan));
            match difference(entry.granted(), actual, charge) {
                Some(operation) if entry.source() == Source::Fallback => {
                    core.settle_in_fallback(&plan, entry.key(), operation);
                }
                Some(operation) => return Some((entry, plan, operation)),
                None => {}
            }
        }
        None
    }

    /// What the store made of the last entry. After an error it may be settled again where it certainly was not; otherwise the
    /// estimate stays charged, because units that went back twice would be units of others.
    fn settled(&mut self, answer: Result<Decision>) -> Result<()> {
        if answer.as_ref().is_err_and(Error::did_not_run) {
            self.begun = self.begun.saturating_sub(1);
        }
        answer.map(drop)
    }
}

impl LimiterCore {
    /// Settles a Decision, entry by entry.
    pub(super) async fn settle(
        self: &Arc<Self>,
        decision: &Decision,
        actual: ActualCosts<'_>,
        user: User,
    ) -> Result<()> {
        let mut settling = Settling::begin(self, decision, actual)?;
        while let Some((decision, plan, operation)) = settling.next(self) {
            settling.settled(self.decision(plan, decision.key(), operation, user).await)?;
        }
        Ok(())
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        for entry in self.entries.iter().skip(self.begun) {
            entry.settlement().undo();
        }
    }
}

fn is_of(core: &LimiterCore, entry: &Decision) -> Result<()> {
    let id = entry.limiter();
    if id == core.id.here() {
        return Ok(());
    }
    if id == LimiterId::ELSEWHERE || id.digest() == core.id.digest() {
        return Err(Error::config(format!(
            "this Decision about {:?} left the process that got it, where it may be settled too: settle it there, or call charge \
             or refund with the difference here",
            entry.policy()
        )));
    }
    Err(Error::config(
        "settle was given a Decision of another limiter: settle it with the limiter that made it, or with one of the same store \
         and prefix",
    ))
}

/// # Errors
/// `cost_invalid` for a number that is out of range.
pub(crate) fn valid_actual(actual: u64) -> Result<()> {
    if actual > MAX_SAFE_INTEGER { valid_cost(actual).map(drop) } else { Ok(()) }
}

/// What there is to do where `granted` units were consumed: charge, give back, or nothing.
pub(crate) fn difference(granted: u64, actual: u64, charge: impl FnOnce() -> Arc<Charge>) -> Option<Operation> {
    match actual {
        _ if actual > granted => Some(Operation::Surcharge { cost: actual - granted }),
        _ if actual < granted => Some(Operation::GiveBack { units: granted - actual, charge: charge() }),
        _ => None,
    }
}

/// What a settle has to know of a Decision that the host did not keep.
#[derive(Debug, Clone)]
pub struct ChargedUnits {
    /// The units it consumed.
    pub units: u64,
    /// What gave the answer.
    pub source: Source,
    /// When, in microseconds by the time of the store.
    pub at: u64,
    /// The number that [`charge_mark`] gave.
    pub mark: f64,
    /// The algorithm of each limit, its period in microseconds, and when it is as if unused.
    pub limits: Vec<(Algorithm, u64, u64)>,
    /// Whether the policy may have other numbers now.
    pub policy_changed: bool,
}

/// A mark tells fewer clears than this that were made at the moment of the charge.
const CLEARS: u64 = 4;

/// What a host has to keep of a Decision, beside what it says, so that it can be settled.
#[must_use]
pub fn charge_mark(decision: &Decision) -> f64 {
    let Charge { at, block, refunded, cleared_at, .. } = decision.answer().charge();
    if block > 0 {
        return -f64::from(block);
    }
    // Clears of earlier moments need not be known.
    let clears = if cleared_at == 0 { 0 } else { (cleared_at + 1).saturating_sub(at).min(CLEARS - 1) };
    (refunded.min(MAX_SAFE_INTEGER / CLEARS) * CLEARS + clears) as f64
}

impl ChargedUnits {
    pub(crate) fn charge(&self, plan: &Plan) -> Charge {
        let limits = plan.policy.limits().iter().zip(&plan.rules).map(|(limit, rule)| {
            let is_same =
                |known: &&(Algorithm, u64, u64)| (known.0, known.1) == (limit.algorithm(), limit.period().micros());
            let (.., empty_at) = self.limits.iter().find(is_same)?;
            match (rule.meter(), self.policy_changed) {
                (None, _) => Some(0),
                (Some(_), false) => Some(*empty_at),
                // The bucket may have drained faster.
                (Some(_), true) => None,
            }
        });
        let (block, mark) = if self.mark < 0.0 { (-self.mark as u32, 0) } else { (0, self.mark as u64) };
        let (refunded, clears) = (mark / CLEARS, mark % CLEARS);
        let cleared_at = if clears > 0 { self.at + clears - 1 } else { 0 };
        let (at, units) = (self.at, self.units);
        Charge { at, units, block, refunded, cleared_at, limits: limits.collect(), ..Charge::default() }
    }
}
