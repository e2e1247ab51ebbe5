//! The answer to a check when the store fails: an error, an admission, a denial, or the usage that this process knows
//! and enforces itself.

mod process_usage;
mod usage_snapshots;

use std::sync::Arc;

use super::layer::Layer;
use super::telemetry::Telemetry;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::policy::OnStoreError;
use crate::process::clock::SteadyClock;
use crate::process::fork::PerProcess;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, Source, States};
use process_usage::ProcessUsage;
#[cfg(feature = "bench")]
pub(crate) use usage_snapshots::UsageSnapshots;

/// The microseconds after which a check may be tried again that was denied because the store failed.
const RETRY_AFTER: u64 = 1_000_000;

/// The layer that answers for a store that failed, as `on_store_error` decides.
pub(crate) struct Fallback {
    /// For policies without their own `on_store_error`.
    default_choice: OnStoreError,
    clock: SteadyClock,
    /// A forked child begins anew, because a lock that a thread of its parent held stays locked in the child.
    usage: PerProcess<ProcessUsage>,
    telemetry: Arc<Telemetry>,
}

impl Fallback {
    pub(crate) fn new(default_choice: OnStoreError, telemetry: Arc<Telemetry>) -> Arc<Self> {
        let reports = Arc::clone(&telemetry);
        let (clock, usage) = (SteadyClock::default(), PerProcess::new());
        let fallback = Arc::new(Self { default_choice, clock, usage, telemetry });
        let weak = Arc::downgrade(&fallback);
        reports.when_back(move || {
            if let Some(fallback) = weak.upgrade() {
                fallback.with_usage(ProcessUsage::end_outage);
            }
        });
        fallback
    }

    /// Settles a check that a fallback answered: in the usage that it was charged to, if that is still in force.
    pub(crate) fn settle(&self, entry: &Entry<'_>, now: Option<u64>) {
        if self.choice(entry.plan) == OnStoreError::Local {
            let now = self.now(now);
            self.with_usage(|usage| usage.settle(entry, now));
        }
    }

    fn with_usage<R>(&self, run: impl FnOnce(&ProcessUsage) -> R) -> R {
        self.usage.with(|| ProcessUsage::new(&self.telemetry.forgotten_denials), run)
    }

    #[inline]
    fn choice(&self, plan: &Plan) -> OnStoreError {
        plan.policy.options().on_store_error.unwrap_or(self.default_choice)
    }

    #[inline]
    fn now(&self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| self.clock.micros())
    }

    /// Takes the states out of an answer of the store. `None` if they are of no use here. A denial that the deny cache
    /// may repeat keeps its states.
    #[inline]
    fn take_states(&self, entry: &Entry<'_>, answer: &mut Answer) -> Option<States> {
        let states = answer.states.take()?;
        if !answer.applied && entry.operation.is_check() && entry.plan.repeats_denials() {
            answer.states = Some(states.clone());
        }
        (self.choice(entry.plan) == OnStoreError::Local).then_some(*states)
    }

    /// The answer to an entry in place of the store's, counted.
    fn answer(
        &self,
        choice: OnStoreError,
        entry: &Entry<'_>,
        now: u64,
        enforce: impl FnOnce(&ProcessUsage) -> Answer,
    ) -> Answer {
        let (count, answer) = match choice {
            OnStoreError::Local => (&self.telemetry.counts.fallback_local, self.with_usage(enforce)),
            OnStoreError::Open => (&self.telemetry.counts.fallback_open, admitted(entry, now)),
            OnStoreError::Closed | OnStoreError::Raise => {
                (&self.telemetry.counts.fallback_closed, unavailable(entry, now))
            }
        };
        count.add(1);
        answer
    }

    #[cold]
    fn answer_one(&self, entry: &Entry<'_>, now: Option<u64>, error: Error) -> Result<Answer> {
        let (now, choice) = (self.now(now), self.choice(entry.plan));
        // `open` and `closed` took no units, so there is nothing to renew or to give back.
        let is_of_hold = matches!(entry.operation, Operation::Renew { .. } | Operation::Close { .. });
        match choice {
            OnStoreError::Raise => Err(error),
            // A limit in each process would multiply it by their number, while the store works.
            OnStoreError::Local if error.is_contention() => Err(error),
            OnStoreError::Open | OnStoreError::Closed if is_of_hold => Err(error),
            choice => Ok(self.answer(choice, entry, now, |usage| usage.enforce(entry, now))),
        }
    }

    /// Answers entries that are decided together. If one raises, the call fails. If one is closed, the call is denied.
    /// The entries that are enforced locally are decided together.
    #[cold]
    fn answer_all(&self, entries: &[Entry<'_>], now: Option<u64>, error: Error) -> Result<Vec<Answer>> {
        let now = self.now(now);
        let choices: Vec<OnStoreError> = entries.iter().map(|entry| self.choice(entry.plan)).collect();
        if choices.contains(&OnStoreError::Raise) || error.is_contention() && choices.contains(&OnStoreError::Local) {
            return Err(error);
        }
        let closes = |(entry, choice): (&Entry<'_>, &OnStoreError)| {
            *choice == OnStoreError::Closed && !entry.plan.policy.options().shadow
        };
        let closed = entries.iter().zip(&choices).any(closes);
        let is_local = |choice: &OnStoreError| *choice == OnStoreError::Local;
        let local: Vec<Entry<'_>> = entries
            .iter()
            .zip(&choices)
            .filter(|(_, choice)| is_local(choice))
            // If the call is denied in any case, nothing is charged.
            .map(|(entry, _)| match closed {
                true => Entry { operation: entry.operation.as_peek(), ..entry.clone() },
                false => entry.clone(),
            })
            .collect();
        let mut local = self
            .with_usage(|usage| match (&*local, closed) {
                ([], _) => Vec::new(),
                (local, true) => local.iter().map(|entry| usage.enforce(entry, now)).collect(),
                (local, false) => usage.enforce_all(local, now),
            })
            .into_iter();
        let answers = entries.iter().zip(choices).map(|(entry, choice)| {
            self.answer(choice, entry, now, |_| local.next().unwrap_or_else(|| unavailable(entry, now)))
        });
        Ok(answers.collect())
    }
}

/// True if only the store may answer an operation, because its caller must know if it was done.
fn is_for_store(operation: &Operation) -> bool {
    match operation {
        Operation::GiveBack { charge, .. } => charge.generation != 0,
        operation => {
            matches!(
                operation,
                Operation::Override(_)
                    | Operation::NoteOverride(_)
                    | Operation::ListOverrides
                    | Operation::Block { .. }
                    | Operation::Clear
                    | Operation::Journal
                    | Operation::NoteDenial { .. }
                    | Operation::Lease(_)
            )
        }
    }
}

/// The answer about a key that was never used.
fn unused(entry: &Entry<'_>, now: u64) -> Answer {
    let views = entry.plan.unused_views(now, |index| entry.operation.amount(index));
    Answer { now, views, source: Source::Fallback, ..Answer::default() }
}

fn admitted(entry: &Entry<'_>, now: u64) -> Answer {
    Answer { applied: true, granted: entry.operation.consumes(), ..unused(entry, now) }
}

fn unavailable(entry: &Entry<'_>, now: u64) -> Answer {
    Answer { unavailable: true, blocked_until: now + RETRY_AFTER, ..unused(entry, now) }
}

impl Layer for Fallback {
    #[inline]
    fn before(&self, _: &Entry<'_>, _: &CallContext<'_>, _: &mut LayerStates) -> Option<Result<Answer>> {
        None
    }

    #[inline]
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, _: &LayerStates, result: &mut Result<Answer>) {
        match result {
            Ok(answer) => {
                if let Some(rare) = answer.rare.as_ref().filter(|rare| !rare.others.is_empty()) {
                    self.telemetry.other_release(entry.plan, &rare.others);
                }
                if let Some(states) = self.take_states(entry, answer) {
                    self.with_usage(|usage| {
                        let at = self.now(now);
                        usage.observe(entry, answer, states, at);
                        // A time that a caller gives may run backwards.
                        if now.is_none() {
                            usage.sweep_if_due(at);
                        }
                    });
                }
            }
            Err(error) if error.kind().is_store() && !is_for_store(&entry.operation) => {
                *result = self.answer_one(entry, now, error.clone());
            }
            Err(_) => {}
        }
        if let Operation::Close { hold } = entry.operation {
            self.with_usage(|usage| usage.forget_hold(hold));
        }
    }

    fn forget_all(&self) {
        self.with_usage(ProcessUsage::forget_all);
    }

    fn after_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        _: &LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        match result {
            Ok(mut answers) => {
                let now = self.now(now);
                for (entry, answer) in entries.iter().zip(&mut answers) {
                    if let Some(states) = self.take_states(entry, answer) {
                        self.with_usage(|usage| usage.observe_usage(entry, answer, states, now));
                    }
                }
                Ok(answers)
            }
            Err(error) if error.kind().is_store() => self.answer_all(entries, now, error),
            Err(error) => Err(error),
        }
    }
}
