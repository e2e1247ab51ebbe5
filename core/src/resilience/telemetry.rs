//! What the layers report: one log line and one call of the listener for each change of a store's state, and counters.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;

use super::store_change::{Listener, StoreChange, StoreState};
use super::store_stats::{ConditionOf, StoreCondition, StoreHistograms, StoreStats};
use crate::error::{Error, ErrorKind};
use crate::histogram::SharedHistogram;
use crate::plan::{LimitTag, Plan};
use crate::process::log::{Log, WarningKind};
use crate::store::memory::ForgottenDenials;

/// What the layers have counted since the limiter was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Operations that were sent to a shared store.
    pub asked: u64,
    /// Denials that were repeated without asking the store.
    pub deny_cache: u64,
    /// Checks and peeks that were answered from units taken in advance.
    pub lease: u64,
    /// Answers of `on_store_error: open` …
    pub fallback_open: u64,
    /// … of `closed` …
    pub fallback_closed: u64,
    /// … and of `local`.
    pub fallback_local: u64,
    /// How often a store was lost.
    pub lost: u64,
    /// Operations that were not sent because the store was lost.
    pub withheld: u64,
    /// Operations that failed with `store_unavailable` …
    pub store_unavailable: u64,
    /// … with `store_timeout` …
    pub store_timeout: u64,
    /// … and with `store_rejected`.
    pub store_rejected: u64,
    /// Denials that the memory of this process forgot before their time, because `max_bytes` left no room for more.
    pub forgotten_denials: u64,
    /// Renewals of holds that the store did not answer.
    pub hold_renewals_failed: u64,
    /// Calls of `acquire` that were denied at once because too many callers waited already.
    pub acquires_refused: u64,
    /// Holds that were lost. See [`Hold::lost`](crate::Hold::lost).
    pub holds_lost: u64,
}

impl Counters {
    /// Those of a limiter whose only store is its memory.
    pub(crate) fn of_memory(forgotten_denials: &ForgottenDenials) -> Self {
        Self { forgotten_denials: forgotten_denials.get(), ..Self::default() }
    }
}

/// A counter of several threads.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Reports the state of a store and the calls to it.
#[derive(Default)]
pub(crate) struct Telemetry {
    listener: Option<Listener>,
    log: Arc<Log>,
    /// Called when a store is back, before the listener.
    on_back: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) asked: Counter,
    pub(super) fallback_open: Counter,
    pub(super) fallback_closed: Counter,
    pub(super) fallback_local: Counter,
    pub(super) lost: Counter,
    pub(super) withheld: Counter,
    unavailable: Counter,
    timeout: Counter,
    rejected: Counter,
    histograms: StoreHistograms,
    /// Each store below a breaker. Nothing locks it: a forked child may begin while a thread of its parent reads it.
    conditions: ArcSwap<Vec<ConditionOf>>,
    /// Counts what the memory of the fallback forgot.
    pub(super) forgotten_denials: Arc<ForgottenDenials>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counters().fmt(f)
    }
}

impl Telemetry {
    pub(crate) fn new(listener: Option<Listener>, log: &Arc<Log>) -> Self {
        Self { listener, forgotten_denials: ForgottenDenials::shared(log), log: Arc::clone(log), ..Self::default() }
    }

    /// A key of a policy is counted by limits too that this version of the policy does not have.
    #[cold]
    pub(super) fn other_release(&self, plan: &Plan, others: &[LimitTag]) {
        self.log.warn_once(WarningKind::OtherRelease, || {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
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

    /// Can be set once; the fallback does when it is made.
    pub(super) fn when_back(&self, run: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_back.set(Box::new(run));
    }

    /// A store whose condition the stats show.
    pub(super) fn watch(&self, condition: ConditionOf) {
        self.conditions.rcu(|known| known.iter().cloned().chain([Arc::clone(&condition)]).collect::<Vec<_>>());
    }

    /// The condition of each store, by its URL without secrets.
    pub(crate) fn conditions(&self) -> BTreeMap<String, StoreCondition> {
        self.conditions.load().iter().filter_map(|condition| condition()).collect()
    }

    /// A call has ended that took so many microseconds.
    #[inline]
    pub(super) fn ended(&self, micros: u64) {
        self.histograms.latency.observe(micros);
    }

    /// For the stores, which fill it.
    pub(crate) fn batch_sizes(&self) -> Arc<SharedHistogram> {
        Arc::clone(&self.histograms.batch_sizes)
    }

    pub(crate) fn store_stats(&self) -> StoreStats {
        let errors = [
            (ErrorKind::StoreUnavailable, &self.unavailable),
            (ErrorKind::StoreTimeout, &self.timeout),
            (ErrorKind::StoreRejected, &self.rejected),
        ];
        self.histograms.stats(errors.map(|(kind, count)| (kind, count.get())))
    }

    /// In a forked child: counts its own events from now on.
    pub(crate) fn forked(&self) {
        let counters = [
            &self.asked,
            &self.fallback_open,
            &self.fallback_closed,
            &self.fallback_local,
            &self.lost,
            &self.withheld,
            &self.unavailable,
            &self.timeout,
            &self.rejected,
        ];
        counters.into_iter().for_each(Counter::reset);
        self.histograms.reset();
        self.forgotten_denials.reset();
    }

    /// For a memory store below the layers.
    pub(crate) fn forgotten_denials(&self) -> Arc<ForgottenDenials> {
        Arc::clone(&self.forgotten_denials)
    }

    pub(super) fn failed(&self, kind: ErrorKind) {
        match kind {
            ErrorKind::StoreUnavailable => self.unavailable.add(1),
            ErrorKind::StoreTimeout => self.timeout.add(1),
            ErrorKind::StoreRejected => self.rejected.add(1),
            _ => {}
        }
    }

    /// All counters but those of the deny cache, of holds and of queues, which count by themselves.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            asked: self.asked.get(),
            deny_cache: 0,
            lease: 0,
            fallback_open: self.fallback_open.get(),
            fallback_closed: self.fallback_closed.get(),
            fallback_local: self.fallback_local.get(),
            lost: self.lost.get(),
            withheld: self.withheld.get(),
            store_unavailable: self.unavailable.get(),
            store_timeout: self.timeout.get(),
            store_rejected: self.rejected.get(),
            forgotten_denials: self.forgotten_denials.get(),
            hold_renewals_failed: 0,
            acquires_refused: 0,
            holds_lost: 0,
        }
    }

    pub(super) fn gone(&self, store: &str, state: StoreState, cause: &Error, since: SystemTime) {
        let sentence = match state {
            StoreState::Refusing => format!("{store} refuses what it is asked, and on_store_error decides: {cause}"),
            _ => format!("{store} is lost, and on_store_error decides until it answers: {cause}"),
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
