//! The state of a breaker, which calls and probing threads share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;

use crate::counting::StoreCondition;
use crate::error::{Error, ErrorKind, Result};
use crate::process::clock::SteadyClock;
use crate::process::fork;
use crate::resilience::store_change::StoreState;
use crate::resilience::telemetry::Telemetry;
use crate::store::Store;
use crate::store::layer_states::SentCall;

/// Failures in a row after which a store is lost, and refusals after which it is refusing.
const FAILURE_THRESHOLD: u32 = 3;
/// The pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(100);
/// The timeout of a short probe. After one, and the pause, the next finds a server that is back well within a second.
pub(super) const SHORT_PROBE: Duration = Duration::from_millis(250);
/// A store that has refused within this time still counts as refusing, though it answers other calls. Otherwise a store
/// that serves reads and refuses writes would change its state all the time.
const REFUSAL_QUIET_TIME: Duration = Duration::from_secs(1);

/// One outage of a store, from the moment on when it was noticed.
struct Outage {
    /// Probing threads belong to this process: a forked child has none and asks the store itself.
    process: u64,
    cause: Error,
    /// The error of calls that are not sent.
    error: Error,
    since: SystemTime,
    began: Instant,
    /// True if a probe has found that it is over.
    over: AtomicBool,
    probers: [OnceLock<Thread>; 2],
}

impl Outage {
    /// `shown` is the store's URL without secrets.
    fn new(shown: &str, cause: Error) -> Self {
        let error = Error::new(cause.kind(), format!("{shown} is not asked until it answers again: {cause}"));
        let (since, began) = (SystemTime::now(), Instant::now());
        let (over, probers) = (AtomicBool::new(false), Default::default());
        Self { process: fork::generation(), cause, error, since, began, over, probers }
    }

    fn is_of_this_process(&self) -> bool {
        self.process == fork::generation()
    }
}

/// Decides if the store may be asked, and has it probed.
pub(super) struct Circuit {
    /// The store that is probed.
    store: Arc<dyn Store>,
    /// The store's URL without secrets.
    shown: String,
    /// The timeout of a call.
    timeout: Duration,
    pub(super) telemetry: Arc<Telemetry>,
    failures: AtomicU32,
    /// Set while the circuit is open: the store is lost.
    open: ArcSwapOption<Outage>,
    /// How often the circuit was closed again. The failure of a call from an earlier epoch does not count for the store
    /// as it is now.
    epoch: AtomicU64,
    refusals: AtomicU32,
    /// When the store last refused, in milliseconds since `began`.
    refused: AtomicU64,
    refusing: ArcSwapOption<Outage>,
    began: Instant,
    /// Measures calls: two readings take about as long as one of `Instant`.
    clock: SteadyClock,
    closed: AtomicBool,
}

impl Circuit {
    pub(super) fn new(store: Arc<dyn Store>, shown: String, timeout: Duration, telemetry: Arc<Telemetry>) -> Self {
        Self {
            store,
            shown,
            timeout,
            telemetry,
            failures: AtomicU32::new(0),
            open: ArcSwapOption::empty(),
            epoch: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            refusing: ArcSwapOption::empty(),
            began: Instant::now(),
            clock: SteadyClock::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The error of calls while the circuit is open.
    #[inline]
    pub(super) fn lost(&self) -> Option<Error> {
        let open = self.open.load();
        let outage = open.as_ref()?;
        outage.is_of_this_process().then(|| outage.error.clone().of_no_run())
    }

    /// The store's URL without secrets, and its condition.
    pub(super) fn condition(&self) -> (String, StoreCondition) {
        let condition = match (self.lost(), self.refusing.load().is_some()) {
            (Some(_), _) => StoreCondition::Lost,
            (None, true) => StoreCondition::Refusing,
            (None, false) => StoreCondition::Ok,
        };
        (self.shown.clone(), condition)
    }

    /// Fails while the circuit is open, and counts the operations that are not sent.
    #[inline]
    pub(super) fn may_send(&self, operations: usize) -> Result<()> {
        let Some(error) = self.lost() else { return Ok(()) };
        self.telemetry.counts.withheld.add(operations as u64);
        Err(error)
    }

    /// Counts operations that are about to be sent. Fails while the circuit is open.
    #[inline]
    pub(super) fn send(&self, operations: usize, deadline: Option<Instant>) -> Result<SentCall> {
        self.may_send(operations)?;
        self.telemetry.counts.asked.add(operations as u64);
        let (epoch, had_little_time) = (self.epoch.load(Ordering::Acquire), !self.has_time(deadline));
        Ok(SentCall { epoch, at: self.clock.micros(), had_little_time })
    }

    /// True if a call with that deadline has enough time for its failure to count against the store.
    fn has_time(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none_or(|deadline| deadline.saturating_duration_since(Instant::now()) >= self.timeout / 2)
    }

    /// Learns from the result of a call.
    #[inline]
    pub(super) fn observe(self: &Arc<Self>, sent: SentCall, error: Option<&Error>) {
        self.telemetry.ended(self.clock.micros().saturating_sub(sent.at));
        match error {
            Some(error) if error.is_contention() || sent.had_little_time && error.kind() == ErrorKind::StoreTimeout => {
                self.telemetry.failed(error.kind())
            }
            None => {
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                if self.refusals.load(Ordering::Relaxed) != 0 {
                    self.accepted();
                }
            }
            Some(error) => self.failed(sent.epoch, error),
        }
    }

    #[cold]
    fn failed(self: &Arc<Self>, epoch: u64, error: &Error) {
        self.telemetry.failed(error.kind());
        if error.kind() == ErrorKind::StoreRejected {
            self.failures.store(0, Ordering::Relaxed);
            self.rejected(error);
        } else if error.kind().is_store() && epoch == self.epoch.load(Ordering::Acquire) {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            if failures >= FAILURE_THRESHOLD {
                self.open(error);
            }
        }
    }

    fn open(self: &Arc<Self>, cause: &Error) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let known = self.open.load();
        if known.as_ref().is_some_and(|outage| outage.is_of_this_process()) {
            return;
        }
        let outage = Arc::new(Outage::new(&self.shown, cause.clone()));
        let before = self.open.compare_and_swap(&known, Some(Arc::clone(&outage)));
        if !is_same(before.as_ref(), known.as_ref()) {
            // Another call has opened it first.
            return;
        }
        self.telemetry.counts.lost.add(1);
        let reported = Arc::clone(&outage);
        let is_probed = self.start_prober(&outage, 0, move |circuit| {
            // On this thread, so that no caller waits for the listener.
            circuit.telemetry.gone(&circuit.shown, StoreState::Lost, &reported.cause, reported.since);
            circuit.probe(&reported, Some(SHORT_PROBE));
        });
        if !is_probed {
            // Without a prober only a call can find out when the store is back.
            return self.close_again();
        }
        if self.timeout > SHORT_PROBE {
            let probed = Arc::clone(&outage);
            self.start_prober(&outage, 1, move |circuit| circuit.probe(&probed, None));
        }
    }

    /// Starts a thread that probes. Returns true if it has started.
    fn start_prober(
        self: &Arc<Self>,
        outage: &Outage,
        number: usize,
        run: impl FnOnce(&Self) + Send + 'static,
    ) -> bool {
        let circuit = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tidegate-probe".to_owned()).spawn(move || run(&circuit));
        let Ok(thread) = thread else { return false };
        let _ = outage.probers[number].set(thread.thread().clone());
        true
    }

    fn close_again(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.open.store(None);
    }

    /// Pings the store until it answers. Without a timeout each ping has that of the store.
    fn probe(&self, outage: &Outage, timeout: Option<Duration>) {
        while !self.closed.load(Ordering::Relaxed) && !outage.over.load(Ordering::Relaxed) {
            match self.store.ping(timeout.map(|timeout| Instant::now() + timeout)) {
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) if !is_answer(&error) => std::thread::park_timeout(PROBE_PAUSE),
                _ => {
                    if !outage.over.swap(true, Ordering::Relaxed) {
                        self.close_again();
                        self.telemetry.back(&self.shown, outage.since, outage.began.elapsed());
                    }
                    return;
                }
            }
        }
    }

    fn rejected(&self, error: &Error) {
        let now = self.began.elapsed().as_millis() as u64;
        self.refused.store(now, Ordering::Relaxed);
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 != FAILURE_THRESHOLD {
            return;
        }
        let outage = Arc::new(Outage::new(&self.shown, error.clone()));
        let before = self.refusing.compare_and_swap(&None::<Arc<Outage>>, Some(Arc::clone(&outage)));
        if before.is_none() {
            self.telemetry.gone(&self.shown, StoreState::Refusing, error, outage.since);
        }
    }

    #[cold]
    fn accepted(&self) {
        let refusing = self.refusing.load();
        let Some(outage) = refusing.as_ref() else {
            self.refusals.store(0, Ordering::Relaxed);
            return;
        };
        let last = Duration::from_millis(self.refused.load(Ordering::Relaxed));
        if self.began.elapsed().saturating_sub(last) < REFUSAL_QUIET_TIME {
            return;
        }
        let before = self.refusing.compare_and_swap(&refusing, None);
        if is_same(before.as_ref(), refusing.as_ref()) {
            self.refusals.store(0, Ordering::Relaxed);
            self.telemetry.back(&self.shown, outage.since, outage.began.elapsed());
        }
    }

    /// Ends the probing: the limiter is closed.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(outage) = self.open.load().as_ref() {
            outage.probers.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
        }
    }
}

/// True if the error of a probe shows that the server is back, because each call sees its refusals itself. A server
/// that loads its data refuses everything for as long as that takes.
fn is_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::StoreRejected && !error.message().contains("LOADING")
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}
