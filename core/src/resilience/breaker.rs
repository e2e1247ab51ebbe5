//! Stops asking a store that does not answer, and finds out when it does again.
//!
//! After three failures in a row nobody waits for the store any more: calls fail at once with the last cause, and a
//! thread that lives only that long probes it. Where a call may take long there are two: one that soon gives a question up
//! finds a server that is back while older questions are lost, and one that has all the time of a call finds a server that
//! is far away. Error replies are answers: they open nothing, but are told when they begin and when they end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;

use super::layer::{CallState, Layer, Layered};
use super::signals::{Signals, StoreState};
use crate::error::{Error, ErrorKind, Result};
use crate::fork;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry};

/// Failures in a row after which a store is given up for lost, and refusals after which it is said to refuse.
const PATIENCE: u32 = 3;
/// Between two probes.
const PAUSE: Duration = Duration::from_millis(100);
/// A probe that is soon given up. After one, and the pause, the next finds a server that is back well within a second.
const SOON: Duration = Duration::from_millis(250);
/// A store that refused within this time still refuses, whatever else it answers: one that serves reads and refuses
/// writes would go and come back all the time.
const CALM: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Breaker {
    shared: Arc<Shared>,
}

struct Shared {
    /// What is probed.
    store: Arc<dyn Store>,
    /// The store's URL without secrets.
    shown: String,
    /// What a call may take.
    timeout: Duration,
    signals: Arc<Signals>,
    failures: AtomicU32,
    open: ArcSwapOption<Outage>,
    /// How often it was closed again. A call that began before that tells nothing about the store as it is now.
    era: AtomicU64,
    refusals: AtomicU32,
    /// When it last refused, in milliseconds since `began`.
    refused: AtomicU64,
    refusing: ArcSwapOption<Outage>,
    began: Instant,
    closed: AtomicBool,
}

/// From a store's last sign of life to its next.
struct Outage {
    /// Its probing thread is one of this process: a child that was forked off has none, and asks for itself.
    process: u64,
    cause: Error,
    /// What calls are told.
    error: Error,
    since: SystemTime,
    began: Instant,
    /// Whether somebody has found it to be over.
    over: AtomicBool,
    probers: [OnceLock<Thread>; 2],
}

impl Outage {
    fn new(shown: &str, cause: Error) -> Self {
        let error = Error::new(cause.kind(), format!("{shown} is not asked until it answers again: {cause}"));
        let (since, began) = (SystemTime::now(), Instant::now());
        let (over, probers) = (AtomicBool::new(false), Default::default());
        Self { process: fork::generation(), cause, error, since, began, over, probers }
    }
}

impl Breaker {
    /// `timeout` is what a call of the store may take.
    pub(crate) fn around(store: Arc<dyn Store>, url: &str, timeout: Duration, signals: Arc<Signals>) -> Arc<dyn Store> {
        let shown = super::signals::shown(url);
        let shared = Shared {
            store: Arc::clone(&store),
            shown,
            timeout,
            signals,
            failures: AtomicU32::new(0),
            open: ArcSwapOption::empty(),
            era: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            refusing: ArcSwapOption::empty(),
            began: Instant::now(),
            closed: AtomicBool::new(false),
        };
        Layered::around(Arc::new(Self { shared: Arc::new(shared) }), store)
    }
}

impl Shared {
    /// Why nobody is to wait for the store now.
    #[inline]
    fn lost(&self) -> Option<Error> {
        let open = self.open.load();
        let outage = open.as_ref()?;
        (outage.process == fork::generation()).then(|| outage.error.clone())
    }

    /// Counts operations that are about to be sent.
    #[inline]
    fn sends(&self, operations: usize, deadline: Option<Instant>) -> Result<Sent> {
        match self.lost() {
            Some(error) => {
                self.signals.withheld.add(operations as u64);
                Err(error)
            }
            None => {
                self.signals.asked.add(operations as u64);
                Ok(Sent { era: self.era.load(Ordering::Acquire), hurried: !self.is_fair(deadline) })
            }
        }
    }

    /// Whether a call that is given up at that moment has the time for its failure to say something of the store.
    fn is_fair(&self, by: Option<Instant>) -> bool {
        by.is_none_or(|by| by.saturating_duration_since(Instant::now()) >= self.timeout / 2)
    }

    #[inline]
    fn note(self: &Arc<Self>, sent: Sent, error: Option<&Error>) {
        match error {
            Some(error) if sent.hurried && error.kind() == ErrorKind::StoreTimeout => self.signals.failed(error.kind()),
            None => {
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                if self.refusals.load(Ordering::Relaxed) != 0 {
                    self.accepted();
                }
            }
            Some(error) => self.failed(sent.era, error),
        }
    }

    #[cold]
    fn failed(self: &Arc<Self>, era: u64, error: &Error) {
        self.signals.failed(error.kind());
        if error.kind() == ErrorKind::StoreRejected {
            self.failures.store(0, Ordering::Relaxed);
            self.rejected(error);
        } else if error.kind().is_store() && era == self.era.load(Ordering::Acquire) {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            if failures >= PATIENCE {
                self.opens(error);
            }
        }
    }

    fn opens(self: &Arc<Self>, cause: &Error) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let known = self.open.load();
        if known.as_ref().is_some_and(|outage| outage.process == fork::generation()) {
            return;
        }
        let outage = Arc::new(Outage::new(&self.shown, cause.clone()));
        let before = self.open.compare_and_swap(&known, Some(Arc::clone(&outage)));
        if !same(before.as_ref(), known.as_ref()) {
            // Another call was first.
            return;
        }
        self.signals.lost.add(1);
        let told = Arc::clone(&outage);
        let asks = self.probes(&outage, 0, move |shared| {
            // From here, so that no caller waits for a listener.
            shared.signals.gone(&shared.shown, StoreState::Lost, &told.cause, told.since);
            shared.probe(&told, |store| store.ping(CallContext::until(None, Instant::now() + SOON)));
        });
        if !asks {
            // With nobody to find out when the store is back, every call must.
            return self.closes();
        }
        if self.timeout > SOON {
            let waits = Arc::clone(&outage);
            self.probes(&outage, 1, move |shared| shared.probe(&waits, |store| store.ping(CallContext::default())));
        }
    }

    /// Starts a thread that probes; says whether there is one.
    fn probes(self: &Arc<Self>, outage: &Outage, number: usize, run: impl FnOnce(&Self) + Send + 'static) -> bool {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tidegate-probe".to_owned()).spawn(move || run(&shared));
        let Ok(thread) = thread else { return false };
        let _ = outage.probers[number].set(thread.thread().clone());
        true
    }

    fn closes(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.era.fetch_add(1, Ordering::AcqRel);
        self.open.store(None);
    }

    /// Until the store answers.
    fn probe(&self, outage: &Outage, ping: impl Fn(&dyn Store) -> Result<()>) {
        while !self.closed.load(Ordering::Relaxed) && !outage.over.load(Ordering::Relaxed) {
            match ping(&*self.store) {
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) if !is_answer(&error) => std::thread::park_timeout(PAUSE),
                _ => {
                    if !outage.over.swap(true, Ordering::Relaxed) {
                        self.closes();
                        self.signals.back(&self.shown, outage.since, outage.began.elapsed());
                    }
                    return;
                }
            }
        }
    }

    fn rejected(&self, error: &Error) {
        let now = self.began.elapsed().as_millis() as u64;
        self.refused.store(now, Ordering::Relaxed);
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 != PATIENCE {
            return;
        }
        let outage = Arc::new(Outage::new(&self.shown, error.clone()));
        let before = self.refusing.compare_and_swap(&None::<Arc<Outage>>, Some(Arc::clone(&outage)));
        if before.is_none() {
            self.signals.gone(&self.shown, StoreState::Refusing, error, outage.since);
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
        if self.began.elapsed().saturating_sub(last) < CALM {
            return;
        }
        let before = self.refusing.compare_and_swap(&refusing, None);
        if same(before.as_ref(), refusing.as_ref()) {
            self.refusals.store(0, Ordering::Relaxed);
            self.signals.back(&self.shown, outage.since, outage.began.elapsed());
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(outage) = self.open.load().as_ref() {
            outage.probers.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
        }
    }
}

/// Whether the server is there again, though it answered a probe with an error: what it refuses is told to each call. One
/// that still loads its data refuses everything for as long as that takes.
fn is_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::StoreRejected && !error.message().contains("LOADING")
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

/// What the breaker remembers of a call that was sent.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    /// The era it belongs to.
    era: u64,
    /// Whether it had too little time for a timeout to say anything about the store.
    hurried: bool,
}

impl CallState for Sent {
    const WORDS: usize = 2;

    #[inline]
    fn save(self, states: &mut LayerStates) {
        states.push([self.era, self.hurried.into()]);
    }

    #[inline]
    fn load(states: &mut LayerStates) -> Self {
        let [era, hurried] = states.next();
        Self { era, hurried: hurried != 0 }
    }
}

impl Layer for Breaker {
    type State = Sent;

    #[inline]
    fn before(&self, _: &Entry<'_>, context: CallContext<'_>) -> ControlFlow<Result<Answer>, Sent> {
        match self.shared.sends(1, context.deadline) {
            Ok(sent) => ControlFlow::Continue(sent),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    #[inline]
    fn after(&self, _: &Entry<'_>, _: Option<u64>, sent: Sent, result: Result<Answer>) -> Result<Answer> {
        self.shared.note(sent, result.as_ref().err());
        result
    }

    fn before_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Sent> {
        self.shared.sends(entries.len(), context.deadline)
    }

    fn after_all(
        &self,
        _: &[Entry<'_>],
        _: Option<u64>,
        sent: Sent,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        self.shared.note(sent, result.as_ref().err());
        result
    }

    fn try_immediate(&self, _: &Entry<'_>, _: Option<u64>) -> Option<Result<Answer>> {
        let error = self.shared.lost()?;
        self.shared.signals.withheld.add(1);
        Some(Err(error))
    }

    fn close(&self) {
        self.shared.close();
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.shared.close();
    }
}

#[cfg(test)]
mod tests {
    use super::super::stub::Stub;
    use super::*;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::store::request::Operation;
    use crate::store::submit_then;

    #[test]
    fn failures_of_before_the_way_back_do_not_count_after_it() {
        let (stub, signals) = (Arc::new(Stub::default()), Arc::new(Signals::default()));
        let breaker = Breaker::around(Arc::clone(&stub) as Arc<dyn Store>, "redis://h", SOON, Arc::clone(&signals));
        let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
        let entry = Entry { plan: &plan, key: "k", operation: Operation::Peek { cost: 1 } };
        for _ in 0..20 {
            assert!(submit_then(&breaker, &entry, CallContext::default(), |_| None).is_none());
        }
        let fails = || stub.answer(Err(Error::new(ErrorKind::StoreUnavailable, "gone")));
        (0..3).for_each(|_| fails());
        assert_eq!(signals.counters().lost, 1);
        // The stub answers its ping, so it is back at once.
        while breaker.try_immediate(&entry, CallContext::default()).is_some() {
            std::thread::yield_now();
        }
        (0..17).for_each(|_| fails());
        assert!(breaker.try_immediate(&entry, CallContext::default()).is_none());
        assert_eq!(signals.counters().lost, 1, "twenty that failed together are one outage");
    }
}
