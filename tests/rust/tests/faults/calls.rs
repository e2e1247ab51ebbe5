//! The calls of one limiter under load, and the rules that hold for each of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{Decision, ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::lateness::BareClient;
use tidegate_tests::wait::wait_until;

use super::{Fault, GRACE, MOST, POLICY, RECOVERY, Span, TIMEOUT};

pub(super) struct TimedCall {
    began: Instant,
    ended: Instant,
    answer: Result<Decision, ErrorKind>,
}

impl TimedCall {
    fn is_stored(&self) -> bool {
        matches!(&self.answer, Ok(decision) if decision.source() == Source::Store)
    }
}

/// The 99.9th percentile and the maximum of some durations.
#[derive(Clone, Copy)]
pub(super) struct Percentiles {
    most: Duration,
    all: Duration,
}

impl Percentiles {
    pub(super) fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let last = durations.len() - 1;
        Self { most: durations[last - durations.len() / 1_000], all: durations[last] }
    }
}

/// A control that was measured at the same time: how late sleeping threads woke, and for each window its end and the
/// longest time that a thread of the process waited for a processor.
pub(super) struct Lateness {
    pub(super) late: Percentiles,
    pub(super) waits: Vec<(Instant, Duration)>,
}

impl Lateness {
    /// The longest wait in a window that ended after the first of these moments, and began before the second.
    fn wait(&self, from: Instant, to: Instant) -> Duration {
        let within = self.waits.iter().filter(|(ended, _)| *ended >= from && *ended <= to + TIMEOUT);
        within.map(|(_, wait)| *wait).max().unwrap_or_default()
    }
}

/// One limiter under load.
pub(super) struct LoadedLimiter {
    pub(super) choice: OnStoreError,
    pub(super) limiter: Limiter,
    pub(super) calls: Mutex<Vec<TimedCall>>,
}

impl LoadedLimiter {
    pub(super) fn record(&self, began: Instant, answer: tidegate::Result<Decision>) {
        let call = TimedCall { began, ended: Instant::now(), answer: answer.map_err(|error| error.kind()) };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

/// Panics when a call was late, gave another answer than the promised one, or counted twice.
pub(super) fn judge(fault: &Fault<'_>, loaded: &LoadedLimiter, span: Span, lateness: &Lateness, client: &BareClient) {
    let name = format!("{} with {:?}", fault.name, loaded.choice);
    let calls = loaded.calls.lock().unwrap_or_else(PoisonError::into_inner);
    let took = Percentiles::of(calls.iter().map(|call| call.ended - call.began).collect());
    let (late, wait) = (lateness.late, lateness.waits.iter().map(|(_, wait)| *wait).max().unwrap_or_default());
    println!(
        "{name}: {} calls, 99.9 % within {:?}, all within {:?}; the machine was late by {:?} and by {:?}, and a thread waited {wait:?}",
        calls.len(),
        took.most,
        took.all,
        late.most,
        late.all
    );
    // Three threads may be late: the one that has read the clock and begins the call, the one that delivers the answer, and the one
    // that waits for it.
    assert!(took.most <= TIMEOUT + MOST + 3 * late.most.max(wait), "{name}: one in a thousand took {:?}", took.most);
    assert!(took.all <= TIMEOUT + GRACE + 3 * late.all.max(wait), "{name}: a call took {:?}", took.all);

    // Outside of the fault the store answers. During the fault, whenever the store does not, the promised answer comes.
    let recovered = span.ended + client.first_answer(span.ended) + RECOVERY;
    for call in calls.iter() {
        let healthy = call.ended < span.began || call.began > recovered;
        match &call.answer {
            Ok(decision) if decision.source() == Source::Store => assert!(decision.allowed(), "{name}"),
            // A machine or a server that stalled for so long makes calls late by itself.
            _ if healthy
                && late.all.max(client.longest(call.began, call.ended)).max(lateness.wait(call.began, call.ended))
                    > TIMEOUT / 4 => {}
            answer if healthy => {
                let after = call.began.saturating_duration_since(span.ended);
                panic!("{name}: {answer:?} after {:?}, {after:?} after the end", call.ended - call.began)
            }
            Ok(decision) => {
                assert_eq!(decision.source(), Source::Fallback, "{name}");
                match loaded.choice {
                    OnStoreError::Raise => panic!("{name}: {decision:?} instead of an error"),
                    OnStoreError::Open | OnStoreError::Local => assert!(decision.allowed(), "{name}: {decision:?}"),
                    OnStoreError::Closed => {
                        assert!(!decision.allowed() && decision.unavailable(), "{name}: {decision:?}");
                    }
                    choice => panic!("{name}: {choice} is not known here"),
                }
            }
            Err(kind) => {
                assert_eq!(loaded.choice, OnStoreError::Raise, "{name}: {kind:?}");
                let expected = [ErrorKind::StoreUnavailable, ErrorKind::StoreTimeout, ErrorKind::StoreRejected];
                assert!(expected.contains(kind), "{name}: {kind:?}");
            }
        }
    }
    let failed = |call: &&TimedCall| call.began > span.begun && call.ended < span.ended && !call.is_stored();
    assert!(calls.iter().filter(failed).count() > 0, "{name}: nothing failed, so nothing was tested");
    let back = calls.iter().filter(|call| call.began > span.ended && call.is_stored()).map(|call| call.began).min();
    let back = back.unwrap_or_else(|| panic!("{name}: the store never answered again")) - span.ended;
    println!("{name}: the store answered again {back:?} after the fault");

    // Every check ran at most once, and every check that the store answered did run.
    let kept = |call: &&TimedCall| call.is_stored() && (!fault.loses_data || call.began > span.ended);
    let stored = calls.iter().filter(kept).count() as u64;
    let unsure = calls.iter().filter(|call| !call.is_stored()).count() as u64;
    // The machine may stall during one peek, which the store does not answer then.
    let mut after = None;
    wait_until(Duration::from_secs(10), &format!("{name}: a peek is answered"), || {
        after = loaded.limiter.peek(POLICY, "key", 1).ok().filter(|peek| peek.source() == Source::Store);
        after.is_some()
    });
    let after = after.expect("an answer");
    let used = after.limit() - after.remaining();
    assert!(used >= stored, "{name}: {used} units used, {stored} checks answered");
    assert!(used <= stored + unsure, "{name}: {used} units used, {stored} checks answered, {unsure} unsure");
}
