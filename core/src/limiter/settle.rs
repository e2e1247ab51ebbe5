//! Settles a Decision, once, in the process that got it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::actual_costs::{ActualCosts, ChargedEntry, EntryCosts};
use super::cost::{Cost, valid_cost};
use super::policy_ref::AsPolicy;
use super::translation::{Asking, RepeatableCall};
use super::{AsyncLimiter, Limiter, LimiterCore, on_this_thread};
use crate::algorithm::{MAX_SAFE_INTEGER, Rule};
use crate::decision::{Decision, LimiterId};
use crate::error::{Error, Result};
use crate::plan::{Amount, Amounts, Plan};
use crate::policy::{Algorithm, Limit, Unit};
use crate::process::waits::Waits;
use crate::store::request::{Charge, ChargedAmount, Details, Operation, Source};

/// The entries of a Decision that are being settled.
struct Settling<'a> {
    entries: &'a [Decision],
    actual: EntryCosts,
    begun: usize,
    /// The calls that are left for the last entry that was begun.
    rest: SettleCalls,
}

impl<'a> Settling<'a> {
    /// # Errors
    /// `cost_invalid`, and `config_invalid` for a Decision of another limiter or process, and for one that was settled.
    fn begin(core: &LimiterCore, decision: &'a Decision, actual: ActualCosts) -> Result<Self> {
        core.open()?;
        let entries = decision.entries();
        let charged: SmallVec<[ChargedEntry<'_>; 1]> = entries.iter().map(ChargedEntry::of).collect();
        let actual = actual.of_entries(&charged)?;
        for entry in entries {
            is_of(core, entry)?;
        }
        // Dropping it takes back the settlements that it has begun.
        let mut settling = Self { entries: &[], actual, begun: 0, rest: SettleCalls::new() };
        for (index, entry) in entries.iter().enumerate() {
            if !entry.settlement().begin() {
                return Err(Error::config(format!(
                    "this Decision about {:?} was settled before: settle a Decision once",
                    entry.policy()
                )));
            }
            settling.entries = &entries[..=index];
        }
        Ok(settling)
    }

    /// The next call to the store, and its entry.
    fn next(&mut self, core: &LimiterCore) -> Option<(&'a Decision, SettleCall)> {
        loop {
            if let Some((entry, call)) = self.begun.checked_sub(1).map(|at| &self.entries[at]).zip(self.rest.pop()) {
                return Some((entry, call));
            }
            let entry = self.entries.get(self.begun)?;
            self.begun += 1;
            let Some(actual) = &self.actual[self.begun - 1] else { continue };
            let plan = core.policies.current(Plan::base(entry.plan()));
            self.rest = core.settle_calls(&plan, entry.key(), (entry, actual));
        }
    }

    /// Takes the store's answer for the last entry. After an error it may be settled again if it certainly was not.
    /// Otherwise the estimate stays charged, because units that went back twice would be units of others.
    fn settled(&mut self, answer: Result<Decision>) -> Result<()> {
        if answer.as_ref().is_err_and(Error::did_not_run) {
            self.begun = self.begun.saturating_sub(1);
        }
        if answer.is_err() {
            self.rest.clear();
        }
        answer.map(drop)
    }
}

impl LimiterCore {
    /// Settles a Decision, entry by entry.
    pub(crate) async fn settle(self: &Arc<Self>, decision: &Decision, actual: ActualCosts, waits: Waits) -> Result<()> {
        self.finish(Settling::begin(self, decision, actual)?, waits).await
    }

    /// Settles a request. A shadow policy that would have denied was charged nothing, and stays so.
    #[cfg(feature = "tower")]
    pub(crate) async fn settle_request(
        self: &Arc<Self>,
        decision: &Decision,
        actual: &Cost,
        waits: Waits,
    ) -> Result<()> {
        let mut settling = Settling::begin(self, decision, ActualCosts::One(actual.clone()))?;
        let costs = decision.entries().iter().zip(&mut settling.actual);
        costs.filter(|(entry, _)| entry.shadow()).for_each(|(_, cost)| *cost = None);
        self.finish(settling, waits).await
    }

    async fn finish(self: &Arc<Self>, mut settling: Settling<'_>, waits: Waits) -> Result<()> {
        while let Some((decision, SettleCall { plan, asking })) = settling.next(self) {
            settling.settled(self.decision(plan, decision.key(), asking, waits).await)?;
        }
        Ok(())
    }

    /// The calls to the store after which a key has consumed an actual cost. The fallback settles its own charges at once.
    pub(crate) fn settle_calls(
        &self,
        plan: &Arc<Plan>,
        key: &str,
        (charged, actual): (&impl Charged, &Cost),
    ) -> SettleCalls {
        let own = self.answers.overrides.in_force(plan, key).ok().flatten();
        if charged.source() == Source::Fallback {
            let plan = own.as_ref().unwrap_or(plan);
            let operations = charged.differences(plan, actual);
            operations.into_iter().for_each(|operation| self.settle_in_fallback(plan, key, operation));
            return SettleCalls::new();
        }
        let mut operations = charged.differences(plan, actual);
        for operation in own.iter().flat_map(|own| charged.differences(own, actual)) {
            if !operations.iter().any(|other| gives_back(other) == gives_back(&operation)) {
                operations.push(nothing(plan, gives_back(&operation)));
            }
        }
        operations.sort_by_key(|operation| !gives_back(operation));
        // In memory no other process sets an override of a key.
        let may_move = own.is_some() || self.layers.is_some();
        let call = |operation: Operation| {
            let part =
                || SettlePart { charged: charged.clone(), actual: actual.clone(), gives_back: gives_back(&operation) };
            let asked = may_move.then(|| Box::new(part()) as Box<dyn RepeatableCall>);
            SettleCall { plan: Arc::clone(plan), asking: Asking { asked, ..operation.into() } }
        };
        operations.into_iter().map(call).collect()
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
            "this Decision about {:?} left the process that got it, which may settle it too: settle it there, or charge or \
             refund the difference here",
            entry.policy()
        )));
    }
    Err(Error::config(
        "settle was given a Decision of another limiter: settle it with the limiter that made it, or with one of the same store \
         and prefix",
    ))
}

/// The known facts about a call that is settled.
pub(crate) trait Charged: Clone + Send + 'static {
    /// The source of its answer.
    fn source(&self) -> Source;

    /// The operations after which it has consumed its actual cost of the limits of a plan.
    fn differences(&self, plan: &Plan, actual: &Cost) -> Operations;
}

impl Charged for Decision {
    fn source(&self) -> Source {
        self.source()
    }

    fn differences(&self, plan: &Plan, actual: &Cost) -> Operations {
        let is_plain = self.answer().amounts().is_empty() && !plan.has_units && !plan.is_unlimited();
        let amounts = (!is_plain).then(|| self.charged_amounts(plan).collect());
        differences(self.granted(), amounts, (plan, actual), || self.charge(plan))
    }
}

/// A call of a settle for its policy, and the way to make it for an override of its key.
pub(crate) struct SettleCall {
    pub(crate) plan: Arc<Plan>,
    pub(crate) asking: Asking,
}

/// The last is made first. If it certainly fails, nothing was done.
pub(crate) type SettleCalls = SmallVec<[SettleCall; 2]>;

/// The part of a settle that gives units back, or the part that charges them.
struct SettlePart<C> {
    charged: C,
    actual: Cost,
    gives_back: bool,
}

impl<C: Charged> RepeatableCall for SettlePart<C> {
    fn operation(&self, plan: &Arc<Plan>) -> Operation {
        let mut operations = self.charged.differences(plan, &self.actual).into_iter();
        let own = operations.find(|operation| gives_back(operation) == self.gives_back);
        own.unwrap_or_else(|| nothing(plan, self.gives_back))
    }
}

const fn gives_back(operation: &Operation) -> bool {
    matches!(operation, Operation::GiveBack { .. })
}

/// A call that only finds out if its key has the numbers of this plan.
fn nothing(plan: &Plan, gives_back: bool) -> Operation {
    if gives_back {
        let limits = plan.rules.iter().map(|_| None).collect();
        return Operation::GiveBack { units: 1, charge: Arc::new(Charge { limits, ..Charge::default() }) };
    }
    let amounts = plan.rules.iter().map(|_| Amount::of(0)).collect();
    Operation::Surcharge { cost: 1, details: Details { amounts, ..Details::default() }.shared() }
}

/// The operations of a settle: at most a surcharge, and units that go back.
pub(crate) type Operations = SmallVec<[Operation; 2]>;

/// The operations after which a call has consumed its actual cost. `amounts` are the consumed units of each limit, if
/// they are not `granted` for all.
fn differences(
    granted: u64,
    amounts: Option<SmallVec<[u64; 3]>>,
    (plan, actual): (&Plan, &Cost),
    charge: impl FnOnce() -> Charge,
) -> Operations {
    // The hold gives back held units.
    if plan.rules.iter().all(Rule::holds) {
        return Operations::new();
    }
    let Some(amounts) = amounts else {
        let actual = actual.unnamed().unwrap_or(granted);
        return difference(granted, actual, || Arc::new(charge())).into_iter().collect();
    };
    let limits = plan.policy.limits().iter().zip(amounts);
    let each: SmallVec<[(u64, u64); 3]> =
        limits.map(|(limit, charged)| (charged, actual.of_limit(limit).unwrap_or(charged))).collect();
    let back: SmallVec<[ChargedAmount; 2]> =
        each.iter().map(|&(charged, actual)| ChargedAmount { back: charged.saturating_sub(actual), charged }).collect();
    // A key without limits is charged nothing.
    let more = |&(charged, actual): &(u64, u64)| if plan.is_unlimited() { 0 } else { actual.saturating_sub(charged) };
    let more: Amounts = each.iter().map(|units| Amount::of(more(units))).collect();
    let mut operations = Operations::new();
    if let Some(units) = back.iter().map(|amount| amount.back).max().filter(|units| *units > 0) {
        let charge = Arc::new(Charge { amounts: back, ..charge() });
        operations.push(Operation::GiveBack { units, charge });
    }
    if let Some(cost) = more.iter().map(|amount| amount.units).max().filter(|units| *units > 0) {
        operations
            .push(Operation::Surcharge { cost, details: Details { amounts: more, ..Details::default() }.shared() });
    }
    operations
}

/// # Errors
/// `cost_invalid` for a number that is out of range.
pub(crate) fn valid_actual(actual: u64) -> Result<()> {
    if actual > MAX_SAFE_INTEGER { valid_cost(actual).map(drop) } else { Ok(()) }
}

/// The operation after `granted` units were consumed: charge, give back, or nothing.
fn difference(granted: u64, actual: u64, charge: impl FnOnce() -> Arc<Charge>) -> Option<Operation> {
    match actual {
        _ if actual > granted => Some(Operation::Surcharge { cost: actual - granted, details: None }),
        _ if actual < granted => Some(Operation::GiveBack { units: granted - actual, charge: charge() }),
        _ => None,
    }
}

/// The data that a settle needs of a Decision that the host did not keep.
#[derive(Debug, Clone)]
pub struct ChargedUnits {
    /// The units it consumed.
    pub units: u64,
    /// The source of the answer.
    pub source: Source,
    /// The time of their charge, in microseconds by the time of the store.
    pub at: u64,
    /// The number that [`turn_length`] gave, in microseconds.
    pub life: u64,
    /// The number that [`charge_mark`] gave.
    pub mark: f64,
    /// Its limits, in order.
    pub limits: Vec<ChargedLimit>,
    /// True if the policy may have other numbers now.
    pub policy_changed: bool,
}

/// The data that a settle needs of a limit.
#[derive(Debug, Clone)]
pub struct ChargedLimit {
    /// How it counts.
    pub algorithm: Algorithm,
    /// Its period in microseconds.
    pub period: u64,
    /// When it is as if unused, in microseconds by the time of the store.
    pub empty_at: u64,
    /// The unit that it counts, if it names one.
    pub unit: Option<String>,
    /// The units of it that were consumed.
    pub units: u64,
}

impl ChargedLimit {
    fn is_of(&self, limit: &Limit) -> bool {
        (self.algorithm, self.period, self.unit.as_deref())
            == (limit.algorithm(), limit.period().micros(), limit.unit().map(Unit::name))
    }
}

/// A mark counts fewer clears than this at the moment of the charge.
const CLEARS: u64 = 4;

/// A mark that a host keeps with the data of a Decision, so that it can be settled.
#[must_use]
pub fn charge_mark(decision: &Decision) -> f64 {
    let Charge { at, block, refunded, cleared_at, .. } = decision.answer().charge();
    if block > 0 {
        return -f64::from(block);
    }
    // Clears at earlier moments do not matter.
    let clears = if cleared_at == 0 { 0 } else { (cleared_at + 1).saturating_sub(at).min(CLEARS - 1) };
    (refunded.min(MAX_SAFE_INTEGER / CLEARS) * CLEARS + clears) as f64
}

/// For a turn in a line: how long before the time of a Decision its units were charged.
#[must_use]
pub fn turn_length(decision: &Decision) -> Duration {
    Duration::from_micros(decision.answer().charge().life)
}

#[doc(hidden)]
impl Limiter {
    /// Settles a Decision to the actual costs that an application gives in any form.
    ///
    /// # Errors
    /// As [`Limiter::settle`].
    pub fn settle_costs(&self, decision: &Decision, actual: ActualCosts) -> Result<()> {
        on_this_thread(self.core.settle(decision, actual, Waits::Here))
    }
}

impl AsyncLimiter {
    /// Settles a Decision: see [`Limiter::settle_costs`].
    ///
    /// # Errors
    /// As [`AsyncLimiter::settle`].
    #[doc(hidden)]
    pub async fn settle_costs(&self, decision: &Decision, actual: ActualCosts) -> Result<()> {
        self.core.settle(decision, actual, Waits::TASK).await
    }

    /// Settles the units of a Decision that the host did not keep.
    ///
    /// # Errors
    /// As [`AsyncLimiter::settle`].
    #[doc(hidden)]
    pub async fn settle_charged(
        &self,
        policy: impl AsPolicy,
        key: &str,
        charged: &ChargedUnits,
        actual: &Cost,
    ) -> Result<()> {
        let plan = self.core.plan(&policy, key)?;
        actual.check_actual(&plan.policy)?;
        for SettleCall { plan, asking } in self.core.settle_calls(&plan, key, (charged, actual)).into_iter().rev() {
            self.core.decision(plan, key, asking, Waits::TASK).await?;
        }
        Ok(())
    }
}

impl Charged for ChargedUnits {
    fn source(&self) -> Source {
        self.source
    }

    fn differences(&self, plan: &Plan, actual: &Cost) -> Operations {
        let charged = |limit: &Limit| {
            let unknown = if limit.unit().is_none() { self.units } else { 0 };
            self.limits.iter().find(|known| known.is_of(limit)).map_or(unknown, |known| known.units)
        };
        let is_plain = !plan.has_units
            && !plan.is_unlimited()
            && self.limits.iter().all(|limit| limit.unit.is_none() && limit.units == self.units);
        let amounts = (!is_plain).then(|| plan.policy.limits().iter().map(charged).collect());
        differences(self.units, amounts, (plan, actual), || self.charge(plan))
    }
}

impl ChargedUnits {
    fn charge(&self, plan: &Plan) -> Charge {
        let limits = plan.policy.limits().iter().zip(&plan.rules).map(|(limit, rule)| {
            let known = self.limits.iter().find(|known| known.is_of(limit))?;
            match (rule.meter(), self.policy_changed) {
                (None, _) => Some(0),
                (Some(_), false) => Some(known.empty_at),
                // The bucket may have drained faster.
                (Some(_), true) => None,
            }
        });
        let (block, mark) = if self.mark < 0.0 { (-self.mark as u32, 0) } else { (0, self.mark as u64) };
        let (refunded, clears) = (mark / CLEARS, mark % CLEARS);
        let cleared_at = if clears > 0 { self.at + clears - 1 } else { 0 };
        let Self { at, life, units, .. } = *self;
        Charge { at, life, units, block, refunded, cleared_at, limits: limits.collect(), ..Charge::default() }
    }
}
