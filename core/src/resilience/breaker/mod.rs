//! Stops asking a store that does not answer, and finds out when it answers again.
//!
//! After three failures in a row the circuit opens: calls fail at once with the last cause, and threads that live only as
//! long as the outage probe the store. Where the timeout of a call is long there are two: one with a short timeout finds a
//! server that is back while older probes are lost, and one with the timeout of a call finds a server that is far away.
//! Error replies are answers: they do not open the circuit, but it is reported when they begin and when they end.

mod circuit;
mod outage;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::layer::{Layer, LayerState, Layered};
use super::telemetry::Telemetry;
use crate::error::Result;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry};
use crate::store::url::without_secrets;
use circuit::{Circuit, SentCall};

/// The layer that fails calls at once while the store is lost.
pub(crate) struct Breaker {
    circuit: Arc<Circuit>,
}

impl Breaker {
    /// `timeout` is that of a call of the store.
    pub(crate) fn around(
        store: Arc<dyn Store>,
        url: &str,
        timeout: Duration,
        telemetry: Arc<Telemetry>,
    ) -> Arc<dyn Store> {
        let circuit = Circuit::new(Arc::clone(&store), without_secrets(url), timeout, Arc::clone(&telemetry));
        let circuit = Arc::new(circuit);
        let watched = Arc::downgrade(&circuit);
        telemetry.watch(Arc::new(move || watched.upgrade().map(|circuit| circuit.condition())));
        Layered::around(Arc::new(Self { circuit }), store)
    }
}

impl LayerState for SentCall {
    const WORDS: usize = 2;

    #[inline]
    fn save(self, states: &mut LayerStates) {
        states.push([self.epoch << 1 | u64::from(self.hurried), self.at]);
    }

    #[inline]
    fn load(states: &mut LayerStates) -> Self {
        let [epoch, at] = states.next();
        Self { epoch: epoch >> 1, hurried: epoch & 1 == 1, at }
    }
}

impl Layer for Breaker {
    type State = SentCall;

    #[inline]
    fn before(&self, _: &Entry<'_>, context: CallContext<'_>) -> ControlFlow<Result<Answer>, SentCall> {
        match self.circuit.send(1, context.deadline) {
            Ok(sent) => ControlFlow::Continue(sent),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    #[inline]
    fn after(&self, _: &Entry<'_>, _: Option<u64>, sent: SentCall, result: Result<Answer>) -> Result<Answer> {
        self.circuit.observe(sent, result.as_ref().err());
        result
    }

    fn before_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<SentCall> {
        self.circuit.send(entries.len(), context.deadline)
    }

    fn after_all(
        &self,
        _: &[Entry<'_>],
        _: Option<u64>,
        sent: SentCall,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        self.circuit.observe(sent, result.as_ref().err());
        result
    }

    fn try_immediate(&self, _: &Entry<'_>, _: Option<u64>) -> Option<Result<Answer>> {
        let error = self.circuit.lost()?;
        self.circuit.telemetry.counts.withheld.add(1);
        Some(Err(error))
    }

    fn close(&self) {
        self.circuit.close();
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.circuit.close();
    }
}

#[cfg(test)]
mod tests {
    use super::circuit::SHORT_PROBE;
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::resilience::stub_store::StubStore;
    use crate::store::request::Operation;
    use crate::store::submit_then;

    #[test]
    fn failures_from_before_a_recovery_do_not_count_after_it() {
        let (stub, telemetry) = (Arc::new(StubStore::default()), Arc::new(Telemetry::default()));
        let breaker =
            Breaker::around(Arc::clone(&stub) as Arc<dyn Store>, "redis://h", SHORT_PROBE, Arc::clone(&telemetry));
        let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
        let entry = Entry { plan: &plan, key: "k", operation: Operation::Peek { cost: 1 } };
        for _ in 0..20 {
            assert!(submit_then(&breaker, &entry, CallContext::default(), |_| None).is_none());
        }
        let fails = || stub.answer(Err(Error::new(ErrorKind::StoreUnavailable, "gone")));
        (0..3).for_each(|_| fails());
        assert_eq!(telemetry.counters().lost, 1);
        // The stub answers pings, so it is back at once.
        while breaker.try_immediate(&entry, CallContext::default()).is_some() {
            std::thread::yield_now();
        }
        (0..17).for_each(|_| fails());
        assert!(breaker.try_immediate(&entry, CallContext::default()).is_none());
        assert_eq!(telemetry.counters().lost, 1, "twenty failures together are one outage");
    }
}
