//! Stops asking a store that does not answer, and finds out when it answers again.
//!
//! After three failures in a row the circuit opens: calls fail at once with the last cause, and threads that live only
//! as long as the outage probe the store. If the timeout of a call is long, there are two. The one with a short timeout
//! finds a server that is back while older probes are lost, and the one with the timeout of a call finds a server that
//! is far away. Error replies are answers. They do not open the circuit, but their begin and end are reported.

mod circuit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::layer::{Layer, Layered};
use super::telemetry::Telemetry;
use crate::error::Result;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::{LayerStates, SentCall};
use crate::store::request::{Answer, Entry};
use crate::store::url::without_secrets;
use circuit::Circuit;

/// The layer that fails calls at once while the store is lost.
pub(crate) struct Breaker {
    circuit: Arc<Circuit>,
}

impl Breaker {
    /// `timeout` is that of a call to the store.
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

impl Layer for Breaker {
    #[inline]
    fn before(&self, _: &Entry<'_>, context: &CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        let sent = if context.waits.is_never() {
            self.circuit.may_send(1).map(|()| SentCall::default())
        } else {
            self.circuit.send(1, context.deadline)
        };
        match sent {
            Ok(sent) => states.breaker = sent,
            Err(error) => return Some(Err(error)),
        }
        None
    }

    #[inline]
    fn after(&self, _: &Entry<'_>, _: Option<u64>, states: &LayerStates, result: &mut Result<Answer>) {
        self.circuit.observe(states.breaker, result.as_ref().err());
    }

    fn before_all(&self, entries: usize, deadline: Option<Instant>, states: &mut LayerStates) -> Result<()> {
        states.breaker = self.circuit.send(entries, deadline)?;
        Ok(())
    }

    fn after_all(
        &self,
        _: &[Entry<'_>],
        _: Option<u64>,
        states: &LayerStates,
        result: Result<Vec<Answer>>,
    ) -> Result<Vec<Answer>> {
        self.circuit.observe(states.breaker, result.as_ref().err());
        result
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
    use crate::resilience::layer::{submit_then, try_immediate};
    use crate::resilience::stub_store::StubStore;
    use crate::store::request::Operation;

    #[test]
    fn failures_from_before_a_recovery_do_not_count_after_it() {
        let (stub, telemetry) = (Arc::new(StubStore::default()), Arc::new(Telemetry::default()));
        let breaker =
            Breaker::around(Arc::clone(&stub) as Arc<dyn Store>, "redis://h", SHORT_PROBE, Arc::clone(&telemetry));
        let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
        let entry = Entry { plan: &plan, key: "k", operation: Operation::peek(1) };
        for _ in 0..20 {
            assert!(submit_then(&breaker, &entry, CallContext::at(None), |_| None).is_none());
        }
        let fails = || stub.answer(Err(Error::new(ErrorKind::StoreUnavailable, "gone")));
        (0..3).for_each(|_| fails());
        assert_eq!(telemetry.counters().lost, 1);
        // The stub answers pings, so it is back at once.
        while try_immediate(&*breaker, &entry, CallContext::at(None)).is_some() {
            std::thread::yield_now();
        }
        (0..17).for_each(|_| fails());
        assert!(try_immediate(&*breaker, &entry, CallContext::at(None)).is_none());
        assert_eq!(telemetry.counters().lost, 1, "twenty failures together are one outage");
    }
}
