//! Asks the limits of a request in one step: all are charged and held, or none is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::{
    ActualCosts, AsyncLimiter, Call, CheckEntry, CheckOptions, Cost, Hold, HoldAnswer, Limiter, LimiterCore, gone,
    on_this_thread,
};
use crate::plan::Plan;
use crate::process::waits::Waits;

/// The place of the service that a call goes to, behind the call's own policy.
pub(super) const SERVICE: usize = 1;

/// The answer to the limits of a request, and the units that are held for it. Dropping it gives these back, and does nothing else.
#[derive(Debug)]
pub struct Admission {
    decision: Decision,
    refused_by: Option<usize>,
    waits: bool,
    holds: Vec<(usize, Hold)>,
    steps: Vec<AskedStep>,
}

/// One question to the store: a hold, or a check of all policies that hold nothing.
#[derive(Debug)]
pub struct AskedStep {
    /// True for a hold.
    pub is_hold: bool,
    /// When it began, counted from the begin of the request's first step.
    pub began: Duration,
    /// When its answer had come.
    pub ended: Duration,
    /// Its answer.
    pub decision: Decision,
}

impl Admission {
    /// The turn of a call that goes out.
    pub(super) fn of_turn(decision: Decision, hold: Option<Hold>) -> Self {
        let holds = hold.map(|hold| (0, hold)).into_iter().collect();
        Self { decision, refused_by: None, waits: false, holds, steps: Vec::new() }
    }

    /// The denial of such a call, by the policy at this place.
    pub(super) const fn before_turn(denial: Decision, place: usize, waits: bool) -> Self {
        Self { decision: denial, refused_by: Some(place), waits, holds: Vec::new(), steps: Vec::new() }
    }

    /// The denial of a refused request. An admitted one has a Decision of all policies, in the order in which they were asked.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The place of the policy that refused, among those that were asked.
    #[must_use]
    pub const fn refused_by(&self) -> Option<usize> {
        self.refused_by
    }

    /// True if the service that a call goes to refuses it, and not the call's own policy.
    #[must_use]
    pub fn is_refused_by_service(&self) -> bool {
        self.refused_by == Some(SERVICE)
    }

    /// True if a call that goes out is not refused yet, because it can wait and ask again.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// How long an admitted request waits before it is served: the longest delay of its policies.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.decision.entries().iter().map(Decision::delay).max().unwrap_or_default()
    }

    /// See [`Self::decision`].
    #[must_use]
    pub fn into_decision(self) -> Decision {
        self.decision
    }

    /// Hands over what is held, each hold with the place of its policy.
    pub fn take_holds(&mut self) -> Vec<(usize, Hold)> {
        std::mem::take(&mut self.holds)
    }

    /// Hands over the steps in which the store was asked, where they were to be recorded.
    pub fn take_steps(&mut self) -> Vec<AskedStep> {
        std::mem::take(&mut self.steps)
    }
}

#[doc(hidden)]
impl Limiter {
    /// Asks the limits of a request on this thread: see [`Admission`].
    ///
    /// # Errors
    /// As `check_all` and `hold`. Then nothing is held, and what a hold has charged stays.
    pub fn admit(&self, entries: &[impl CheckEntry], records_steps: bool) -> Result<Admission> {
        on_this_thread(admit(&self.core, entries, Waits::Here, records_steps))
    }
}

#[doc(hidden)]
impl AsyncLimiter {
    /// Asks the limits of a request: see [`Admission`].
    ///
    /// # Errors
    /// As [`Limiter::admit`].
    pub async fn admit(&self, entries: &[impl CheckEntry], records_steps: bool) -> Result<Admission> {
        admit(&self.core, entries, Waits::TASK, records_steps).await
    }
}

/// One policy of a request, as it is asked.
struct RequestPolicy<'a, E> {
    place: usize,
    entry: &'a E,
    options: CheckOptions,
}

impl<'a, E: CheckEntry> RequestPolicy<'a, E> {
    fn new(place: usize, entry: &'a E, plan: &Plan) -> Self {
        let mut options = entry.options();
        if plan.policy.options().priorities.is_none() {
            // A policy without classes has nothing to leave free.
            options.priority = None;
        }
        Self { place, entry, options }
    }
}

/// Holds come first: one that is given back leaves no trace, and so no other call sees a charge of a request that is refused.
async fn admit<E: CheckEntry>(
    core: &Arc<LimiterCore>,
    entries: &[E],
    waits: Waits,
    records_steps: bool,
) -> Result<Admission> {
    let (mut held, mut checked) = (Vec::new(), Vec::new());
    for (place, entry) in entries.iter().enumerate() {
        let plan = core.plan(&entry.policy(), entry.key())?;
        let list = if plan.is_held { &mut held } else { &mut checked };
        list.push(RequestPolicy::new(place, entry, &plan));
    }
    let mut record = StepRecord { began: records_steps.then(Instant::now), steps: Vec::new() };
    let mut holds: Vec<(usize, Hold)> = Vec::with_capacity(held.len());
    let refused = async |denial: &Decision, place, holds: &[(usize, Hold)], record: StepRecord| {
        give_back_all(core, holds, waits).await;
        Ok(Admission { steps: record.steps, ..Admission::before_turn(denial.clone(), place, false) })
    };
    for RequestPolicy { place, entry, options } in &held {
        let began = record.now();
        let answer = core.hold(&entry.policy(), entry.key(), options, Some(Duration::ZERO), waits).await?;
        record.add(began, true, answer.decision());
        match answer {
            HoldAnswer::Held(hold) => holds.push((*place, hold)),
            HoldAnswer::Denied(denial) => return refused(&denial, *place, &holds, record).await,
        }
    }
    let began = record.now();
    let checks = check(core, &checked, waits).await?;
    if let Some(checks) = &checks {
        record.add(began, false, checks);
        if let Some(refuses) = checks.entries().iter().position(|entry| !entry.allowed()) {
            return refused(checks, checked[refuses].place, &holds, record).await;
        }
    }
    let decision = whole(entries.len(), &holds, checks)?;
    Ok(Admission { decision, refused_by: None, waits: false, holds, steps: record.steps })
}

/// The steps of a request, for spans.
struct StepRecord {
    /// `None` where no one asked for them.
    began: Option<Instant>,
    steps: Vec<AskedStep>,
}

impl StepRecord {
    fn now(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    fn add(&mut self, began: Duration, is_hold: bool, decision: &Decision) {
        if self.began.is_some() {
            let ended = self.now();
            self.steps.push(AskedStep { is_hold, began, ended, decision: decision.clone() });
        }
    }
}

/// Checks the policies that hold nothing.
async fn check<E: CheckEntry>(
    core: &Arc<LimiterCore>,
    asked: &[RequestPolicy<'_, E>],
    waits: Waits,
) -> Result<Option<Decision>> {
    match asked {
        [] => Ok(None),
        [RequestPolicy { entry, options, .. }] => {
            core.call_of(&entry.policy(), entry.key(), &Call::check(options.clone()), waits).await.map(Some)
        }
        several => {
            let entries = several.iter().map(|asked| (asked.entry.policy(), asked.entry.key(), asked.options.clone()));
            core.check_all(entries, waits).await.map(Some)
        }
    }
}

/// One Decision of all policies.
fn whole(count: usize, holds: &[(usize, Hold)], checks: Option<Decision>) -> Result<Decision> {
    if let (true, Some(checks)) = (holds.is_empty(), &checks) {
        return Ok(checks.clone());
    }
    let mut checked = checks.as_ref().map(Decision::entries).unwrap_or_default().iter();
    let held = |place: usize| holds.iter().find(|(of, _)| *of == place).map(|(_, hold)| hold.decision());
    let mut all: Vec<Decision> =
        (0..count).filter_map(|place| held(place).or_else(|| checked.next()).cloned()).collect();
    match all.len() {
        1 => Ok(all.remove(0)),
        _ => Decision::of_all(all).ok_or_else(gone),
    }
}

/// Gives back what the other limits of held policies were charged, since a refused request consumes nothing. The holds end when they are
/// dropped.
async fn give_back_all(core: &Arc<LimiterCore>, holds: &[(usize, Hold)], waits: Waits) {
    for (_, hold) in holds {
        give_back(core, hold.decision(), waits).await;
    }
}

/// Gives back everything that a Decision was charged, of each of its policies. A shadow policy that would have denied was charged nothing.
pub(crate) async fn give_back(core: &Arc<LimiterCore>, decision: &Decision, waits: Waits) {
    let nothing = |entry: &Decision| (!entry.shadow()).then(|| Cost::of_each(&entry.plan().policy, 0));
    let nothing: Vec<Option<Cost>> = decision.entries().iter().map(nothing).collect();
    if let Err(error) = core.settle(decision, ActualCosts::Each(nothing), waits).await {
        core.log.warn(&format!("units of {:?} could not be given back: {error}", decision.policy()));
    }
}
