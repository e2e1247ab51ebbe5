//! What a check answers when the store fails: an error, yes, no, or what this process's own memory says.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use compact_str::CompactString;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::layer::Layer;
use super::signals::Signals;
use super::usage_snapshots::UsageSnapshots;
use crate::algorithm::{HoldId, Rule};
use crate::clock::SteadyClock;
use crate::error::{Error, Result};
use crate::fork::PerProcess;
use crate::plan::Plan;
use crate::policy::OnStoreError;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::memory::Memory;
use crate::store::request::{Answer, Entry, Operation, Source};

/// The most keys that are enforced locally, not counting those that are being denied.
const LOCAL_KEYS: usize = 1_000_000;
/// When whoever was denied because the store is missing may try again, in microseconds.
const AGAIN: u64 = 1_000_000;

/// See the module.
pub(crate) struct Fallback {
    /// For policies that make none.
    choice: OnStoreError,
    time: SteadyClock,
    /// A child that was forked off begins anew: its parent's locks may be held for ever there.
    mind: PerProcess<Mind>,
    signals: Arc<Signals>,
}

/// What this process knows and enforces by itself.
#[derive(Default)]
struct Mind {
    known: UsageSnapshots,
    local: ArcSwap<Local>,
    /// Holds that were taken from the store.
    holds: Mutex<HashMap<HoldId, Held>>,
}

struct Held {
    identity: u128,
    key: CompactString,
    units: u64,
}

/// The usage of one outage.
struct Local {
    memory: Memory,
    /// Its number, from 1.
    outage: u64,
    used: AtomicBool,
}

impl Default for Local {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Local {
    fn new(outage: u64) -> Self {
        Self { memory: Memory::new(LOCAL_KEYS), outage, used: AtomicBool::new(false) }
    }
}

impl Fallback {
    pub(crate) fn new(choice: OnStoreError, signals: Arc<Signals>) -> Arc<Self> {
        let told = Arc::clone(&signals);
        let fallback = Arc::new(Self { choice, time: SteadyClock::default(), mind: PerProcess::new(), signals });
        let tidied = Arc::downgrade(&fallback);
        told.when_back(move || {
            if let Some(fallback) = tidied.upgrade() {
                fallback.tidy();
            }
        });
        fallback
    }

    /// Settles a check that a fallback answered: where it was charged, if that still is what counts.
    pub(crate) fn settle(&self, entry: &Entry<'_>, now: Option<u64>) {
        if self.choice(entry.plan) == OnStoreError::Local {
            let ours = self.now(now);
            self.mind.with(Mind::default, |mind| {
                let local = mind.local.load();
                if mind.known.is_local(entry, local.outage) {
                    mind.enforce(&local, entry, ours);
                }
            });
        }
    }
}

/// Operations that are never answered by anybody but the store: who administers must know what was done.
const fn administers(operation: &Operation) -> bool {
    matches!(operation, Operation::Block { .. } | Operation::Clear | Operation::Journal)
}

impl Mind {
    /// The answer of this process's own memory, which goes on from what was known.
    fn enforce(&self, local: &Local, entry: &Entry<'_>, ours: u64) -> Answer {
        self.join(local, entry, ours);
        let mut answer = immediate(local.memory.ask(entry, CallContext::at(Some(ours))));
        answer.source = Source::Fallback;
        self.known.hear(entry, &answer, ours, local.outage);
        answer
    }

    fn enforce_all(&self, local: &Local, entries: &[Entry<'_>], ours: u64) -> Vec<Answer> {
        entries.iter().for_each(|entry| self.join(local, entry, ours));
        let mut answers = local.memory.ask_all(entries, CallContext::at(Some(ours))).unwrap_or_default();
        for (entry, answer) in entries.iter().zip(&mut answers) {
            answer.source = Source::Fallback;
            self.known.hear(entry, answer, ours, local.outage);
        }
        answers
    }

    fn join(&self, local: &Local, entry: &Entry<'_>, ours: u64) {
        local.used.store(true, Ordering::Relaxed);
        let holds = self.holds(entry);
        self.known.join(entry, ours, local.outage, &holds, |resumed| {
            local.memory.put(entry, resumed.states, resumed.blocked_until, ours);
        });
    }

    /// The holds of a key that this process took from the store and has not given back.
    fn holds(&self, entry: &Entry<'_>) -> SmallVec<[(HoldId, u64); 4]> {
        if !counts_holds(entry.plan) {
            return SmallVec::new();
        }
        let holds = self.holds.lock();
        let of = |held: &&Held| held.identity == entry.plan.identity && held.key == entry.key;
        holds.iter().filter(|(_, held)| of(held)).map(|(id, held)| (*id, held.units)).collect()
    }

    /// What the store said becomes known.
    #[inline]
    fn hear(&self, entry: &Entry<'_>, answer: &Answer, ours: u64) {
        self.known.hear(entry, answer, ours, 0);
        if let Operation::Check { cost: units, hold, .. } = entry.operation
            && hold != 0
            && answer.applied
            && counts_holds(entry.plan)
        {
            let held = Held { identity: entry.plan.identity, key: entry.key.into(), units };
            self.holds.lock().insert(hold, held);
        }
    }
}

fn counts_holds(plan: &Plan) -> bool {
    plan.rules.iter().any(|rule| matches!(rule, Rule::Concurrency(_)))
}

/// The embedded store never fails.
fn immediate(answer: Result<Answer>) -> Answer {
    answer.unwrap_or_default()
}

impl Fallback {
    #[inline]
    fn choice(&self, plan: &Plan) -> OnStoreError {
        plan.policy.options().on_store_error.unwrap_or(self.choice)
    }

    #[inline]
    fn now(&self, given: Option<u64>) -> u64 {
        given.unwrap_or_else(|| self.time.micros())
    }

    /// The store is back: it counts again, and what was counted here is only known.
    fn tidy(&self) {
        self.mind.with(Mind::default, |mind| {
            let local = mind.local.load();
            if local.used.load(Ordering::Relaxed) {
                mind.local.store(Arc::new(Local::new(local.outage + 1)));
            }
        });
    }

    #[cold]
    fn instead(&self, entry: &Entry<'_>, now: Option<u64>, error: Error) -> Result<Answer> {
        let ours = self.now(now);
        match self.choice(entry.plan) {
            OnStoreError::Raise => Err(error),
            // Nothing was taken, so there is nothing to renew or give back.
            OnStoreError::Open | OnStoreError::Closed
                if matches!(entry.operation, Operation::Renew { .. } | Operation::Close { .. }) =>
            {
                Err(error)
            }
            OnStoreError::Open => {
                self.signals.fallback_open.add(1);
                Ok(admitted(entry, ours))
            }
            OnStoreError::Closed => {
                self.signals.fallback_closed.add(1);
                Ok(unavailable(entry, ours))
            }
            OnStoreError::Local => {
                self.signals.fallback_local.add(1);
                Ok(self.mind.with(Mind::default, |mind| mind.enforce(&mind.local.load(), entry, ours)))
            }
        }
    }

    /// One that raises makes the whole an error, one that closes a denial; those that are enforced locally are asked
    /// together.
    #[cold]
    fn instead_all(&self, entries: &[Entry<'_>], now: Option<u64>, error: Error) -> Result<Vec<Answer>> {
        let ours = self.now(now);
        let choices: Vec<OnStoreError> = entries.iter().map(|entry| self.choice(entry.plan)).collect();
        if choices.contains(&OnStoreError::Raise) {
            return Err(error);
        }
        let closes = |(entry, choice): (&Entry<'_>, &OnStoreError)| {
            *choice == OnStoreError::Closed && !entry.plan.policy.options().shadow
        };
        let closed = entries.iter().zip(&choices).any(closes);
        let is_local = |choice: &OnStoreError| *choice == OnStoreError::Local;
        let asked: Vec<Entry<'_>> = entries
            .iter()
            .zip(&choices)
            .filter(|(_, choice)| is_local(choice))
            // Where the whole is denied in any case, the others are only asked what they would say.
            .map(|(entry, _)| match closed {
                true => Entry { operation: Operation::Peek { cost: entry.operation.cost() }, ..entry.clone() },
                false => entry.clone(),
            })
            .collect();
        let mut local = self
            .mind
            .with(Mind::default, |mind| {
                let local = mind.local.load();
                match (&*asked, closed) {
                    ([], _) => Vec::new(),
                    (asked, true) => asked.iter().map(|entry| mind.enforce(&local, entry, ours)).collect(),
                    (asked, false) => mind.enforce_all(&local, asked, ours),
                }
            })
            .into_iter();
        let answers = entries.iter().zip(choices).map(|(entry, choice)| match choice {
            OnStoreError::Local => {
                self.signals.fallback_local.add(1);
                local.next().unwrap_or_else(|| unavailable(entry, ours))
            }
            OnStoreError::Open => {
                self.signals.fallback_open.add(1);
                admitted(entry, ours)
            }
            _ => {
                self.signals.fallback_closed.add(1);
                unavailable(entry, ours)
            }
        });
        Ok(answers.collect())
    }
}

/// What a key never seen would be told.
fn fresh(entry: &Entry<'_>, now: u64) -> Answer {
    let views = entry.plan.unused_views(now, entry.operation.cost());
    Answer { now, views, source: Source::Fallback, ..Answer::default() }
}

fn admitted(entry: &Entry<'_>, now: u64) -> Answer {
    Answer { applied: true, ..fresh(entry, now) }
}

fn unavailable(entry: &Entry<'_>, now: u64) -> Answer {
    Answer { unavailable: true, blocked_until: now + AGAIN, ..fresh(entry, now) }
}

impl Layer for Fallback {
    type State = ();

    #[inline]
    fn before(&self, _: &Entry<'_>, _: CallContext<'_>) -> ControlFlow<Result<Answer>, ()> {
        ControlFlow::Continue(())
    }

    #[inline]
    fn after(&self, entry: &Entry<'_>, now: Option<u64>, (): (), result: Result<Answer>) -> Result<Answer> {
        let result = match result {
            Ok(answer) => {
                if self.choice(entry.plan) == OnStoreError::Local {
                    self.mind.with(Mind::default, |mind| mind.hear(entry, &answer, self.now(now)));
                }
                Ok(answer)
            }
            Err(error) if error.kind().is_store() && !administers(&entry.operation) => self.instead(entry, now, error),
            Err(error) => Err(error),
        };
        if let Operation::Close { hold } = entry.operation {
            self.mind.with(Mind::default, |mind| mind.holds.lock().remove(&hold));
        }
        result
    }

    fn after_all(
        &self,
        entries: &[Entry<'_>],
        now: Option<u64>,
        (): (),
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        match result {
            Ok(answers) => {
                let ours = self.now(now);
                for (entry, answer) in entries.iter().zip(&answers) {
                    if self.choice(entry.plan) == OnStoreError::Local {
                        self.mind.with(Mind::default, |mind| mind.known.hear(entry, answer, ours, 0));
                    }
                }
                Ok(answers)
            }
            Err(error) if error.kind().is_store() => self.instead_all(entries, now, error),
            Err(error) => Err(error),
        }
    }
}
