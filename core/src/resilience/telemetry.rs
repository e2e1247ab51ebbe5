//! The reports of the layers: one log line and one call of the listener for each change of a store's state, and counters.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;

use super::store_change::{Listener, StoreChange, StoreState};
use crate::counting::histogram::SharedHistogram;
use crate::counting::{ConditionOf, Counters, SharedCounters, StoreCondition, StoreHistograms, StoreStats};
use crate::error::{Error, ErrorKind};
use crate::plan::{LimitTag, Plan};
use crate::policy::OnStoreError;
use crate::process::log::{Log, WarningKind};
use crate::store::ForgottenDenials;

/// Reports the state of a store and the calls to it.
#[derive(Default)]
pub(crate) struct Telemetry {
    listener: Option<Listener>,
    /// The limiter's choice, which the log line of an outage names.
    on_store_error: OnStoreError,
    log: Arc<Log>,
    /// Called when a store is back, before the listener.
    on_back: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) counts: SharedCounters,
    histograms: StoreHistograms,
    /// Each store below a breaker. It has no lock, because a process may fork while a thread reads it.
    conditions: ArcSwap<Vec<ConditionOf>>,
    /// Counts the denials that the memory of the fallback forgot.
    pub(super) forgotten_denials: Arc<ForgottenDenials>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counters().fmt(f)
    }
}

impl Telemetry {
    pub(crate) fn new(listener: Option<Listener>, on_store_error: OnStoreError, log: &Arc<Log>) -> Self {
        let forgotten_denials = ForgottenDenials::shared(log);
        Self { listener, on_store_error, forgotten_denials, log: Arc::clone(log), ..Self::default() }
    }

    /// Warns that another release counts a key with limits that this version of the policy does not have.
    #[cold]
    pub(super) fn other_release(&self, plan: &Plan, others: &[LimitTag]) {
        let others = plan.of_other_releases(others);
        if others.is_empty() {
            return;
        }
        self.log.warn_once(WarningKind::OtherRelease, || {
            let limits: Vec<String> = plan.policy.limits().iter().map(ToString::to_string).collect();
            format!(
                "policy {:?} has the limits {:?} here, and another release counts the same keys with {:?}: each admits its own, \
                 and blocks count for both. Let one release end before the other changes the algorithm or the period of a limit",
                plan.policy.name(),
                limits.join("; "),
                others.join("; "),
            )
        });
    }

    /// Sets a callback, once. The fallback does that when it is made.
    pub(super) fn when_back(&self, run: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_back.set(Box::new(run));
    }

    /// Shows the condition of a store in the stats.
    pub(super) fn watch(&self, condition: ConditionOf) {
        self.conditions.rcu(|known| known.iter().cloned().chain([Arc::clone(&condition)]).collect::<Vec<_>>());
    }

    /// The condition of each store, by its URL without secrets.
    pub(crate) fn conditions(&self) -> BTreeMap<String, StoreCondition> {
        self.conditions.load().iter().filter_map(|condition| condition()).collect()
    }

    /// Called when a call has ended that took so many microseconds.
    #[inline]
    pub(super) fn ended(&self, micros: u64) {
        self.histograms.latency.observe(micros);
    }

    /// For the stores, which fill it.
    pub(crate) fn batch_sizes(&self) -> Arc<SharedHistogram> {
        Arc::clone(&self.histograms.batch_sizes)
    }

    pub(crate) fn store_stats(&self) -> StoreStats {
        self.histograms.stats(&self.counts.read())
    }

    /// In a forked child: counts its own events from now on.
    pub(crate) fn forked(&self) {
        self.counts.reset();
        self.histograms.reset();
        self.forgotten_denials.reset();
    }

    /// For a memory store below the layers.
    pub(crate) fn forgotten_denials(&self) -> Arc<ForgottenDenials> {
        Arc::clone(&self.forgotten_denials)
    }

    pub(super) fn failed(&self, kind: ErrorKind) {
        match kind {
            ErrorKind::StoreUnavailable => self.counts.store_unavailable.add(1),
            ErrorKind::StoreTimeout => self.counts.store_timeout.add(1),
            ErrorKind::StoreRejected => self.counts.store_rejected.add(1),
            _ => {}
        }
    }

    /// All counters but those of the deny cache, of holds and of queues, which count by themselves.
    pub(crate) fn counters(&self) -> Counters {
        Counters { forgotten_denials: self.forgotten_denials.get(), ..self.counts.read() }
    }

    pub(super) fn gone(&self, store: &str, state: StoreState, cause: &Error, since: SystemTime) {
        let sentence = match state {
            StoreState::Refusing => format!("{store} refuses calls, so {}: {cause}", self.on_store_error.applied()),
            _ => format!("{store} is lost, so {} until it answers: {cause}", self.on_store_error.applied()),
        };
        tracing::warn!(target: "tidegate", "{sentence}");
        self.report(store, state, sentence, since);
    }

    pub(super) fn back(&self, store: &str, since: SystemTime, after: Duration) {
        if let Some(run) = self.on_back.get() {
            run();
        }
        let sentence = format!("{store} is back after {:.1} s", after.as_secs_f64());
        tracing::info!(target: "tidegate", "{sentence}");
        self.report(store, StoreState::Back, sentence, since);
    }

    fn report(&self, store: &str, state: StoreState, sentence: String, since: SystemTime) {
        let Some(listener) = &self.listener else { return };
        let change = StoreChange { store: store.to_owned(), state, sentence, since };
        // A listener that panics must not end the thread, which delivers the answers of all calls.
        drop(catch_unwind(AssertUnwindSafe(|| listener(&change))));
    }
}
