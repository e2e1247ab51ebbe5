//! Several stores, each with a share of the keys.
//!
//! Entries of different stores are still all charged or none: they are charged store by store, in order, and what was
//! charged is refunded when a later store refuses or fails. All of that has the time of one call.

mod partition_progress;
mod pending_check_all;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, MakeCompletion, PingCompletion, WakeTarget, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation};
use crate::store::{Store, submit_then};
use partition_progress::PartitionProgress;
use pending_check_all::PendingCheckAll;

/// Which store has which keys.
pub(super) trait PartitionedStore: Send + Sync {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]>;

    /// The timeout of a call.
    fn timeout(&self) -> Duration;

    /// The number of the store that has the entry's key.
    fn store_of(&self, entry: &Entry<'_>) -> usize;

    fn store(&self, entry: &Entry<'_>) -> &dyn Store {
        &*self.stores()[self.store_of(entry)]
    }
}

/// Words of `LayerStates` that a partitioned store remembers of a call: the number of the store.
pub(super) const WORDS: usize = 1;

impl<T: PartitionedStore> Store for T {
    fn ask(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Result<Answer> {
        self.store(entry).ask(entry, context)
    }

    fn ask_all(&self, entries: &[Entry<'_>], context: CallContext<'_>) -> Result<Vec<Answer>> {
        let deadline = context.deadline.unwrap_or_else(|| Instant::now() + self.timeout());
        let context = CallContext { deadline: Some(deadline), ..context };
        let (stores, mut progress) = (self.stores(), PartitionProgress::new(entries, |entry| self.store_of(entry)));
        for part in 0..progress.parts().len() {
            let store = &stores[progress.parts()[part].store];
            let result = has_time(deadline).and_then(|()| store.ask_all(&progress.entries_of(part, entries), context));
            let failure = match result.map(|answers| progress.record(part, entries, answers)) {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            for repair in progress.repairs(part, entries, failure.is_none()) {
                let entry = Entry { operation: repair.operation.clone(), ..entries[repair.entry].clone() };
                let store = &stores[repair.store];
                if has_time(deadline).is_ok() {
                    progress.repaired(&repair, store.ask(&entry, context));
                } else {
                    refund_later(store, &entry, context.now, self.timeout());
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
            break;
        }
        Ok(progress.finish(entries))
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        context: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        let store = self.store_of(entry);
        states.push::<WORDS>([store as u64]);
        self.stores()[store].submit(entry, context, states, make)
    }

    /// By the store that was asked: the key may belong to another store by now.
    fn after(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let [store] = states.next::<WORDS>();
        self.stores()[store as usize].after(entry, now, states, result)
    }

    fn submit_all(&self, entries: &[Entry<'_>], context: CallContext<'_>, done: BatchCompletion) {
        let deadline = context.deadline.unwrap_or_else(|| Instant::now() + self.timeout());
        let context = CallContext { deadline: Some(deadline), ..context };
        let progress = PartitionProgress::new(entries, |entry| self.store_of(entry));
        match progress.parts() {
            [part] => self.stores()[part.store].submit_all(entries, context, done),
            _ => wake(PendingCheckAll::start(self, entries, progress, context.now, deadline, done)),
        }
    }

    /// Whether all stores answer, and if not, why the first of those does not.
    fn ping(&self, context: CallContext<'_>) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.ping(context))
    }

    fn submit_ping(&self, context: CallContext<'_>, done: PingCompletion) {
        wake(ping_from(Arc::clone(self.stores()), 0, context.deadline, done));
    }

    fn clear_all(&self) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.clear_all())
    }

    fn submit_clear_all(&self, done: PingCompletion) {
        wake(clear_from(Arc::clone(self.stores()), 0, done));
    }

    fn close(&self) {
        self.stores().iter().for_each(|store| store.close());
    }

    fn try_immediate(&self, entry: &Entry<'_>, context: CallContext<'_>) -> Option<Result<Answer>> {
        self.store(entry).try_immediate(entry, context)
    }
}

/// Fails when the deadline has passed. A call that is sent without any time left may still be charged.
fn has_time(deadline: Instant) -> Result<()> {
    if Instant::now() < deadline {
        return Ok(());
    }
    let message = "the stores that were asked first took all the time of this call, so that the others were not asked";
    Err(Error::new(ErrorKind::StoreTimeout, message))
}

/// Refunds what a call has charged that has no time left. No caller waits for it, so it has time of its own.
fn refund_later(store: &Arc<dyn Store>, entry: &Entry<'_>, now: Option<u64>, timeout: Duration) {
    if let Operation::GiveBack { .. } = entry.operation {
        wake(submit_then(store, entry, CallContext::until(now, Instant::now() + timeout), |_| None));
    }
}

/// Pings one store after the other, from the one of that number.
fn ping_from(
    stores: Arc<[Arc<dyn Store>]>,
    number: usize,
    deadline: Option<Instant>,
    done: PingCompletion,
) -> WakeTarget {
    let Some(store) = stores.get(number).cloned() else { return done(Ok(())) };
    let context = CallContext { deadline, ..CallContext::default() };
    let next = move |result| match result {
        Ok(()) => ping_from(stores, number + 1, deadline, done),
        Err(error) => done(Err(error)),
    };
    store.submit_ping(context, Box::new(next));
    None
}

/// Clears one store after the other, from the one of that number.
fn clear_from(stores: Arc<[Arc<dyn Store>]>, number: usize, done: PingCompletion) -> WakeTarget {
    let Some(store) = stores.get(number).cloned() else { return done(Ok(())) };
    let next = move |result| match result {
        Ok(()) => clear_from(stores, number + 1, done),
        Err(error) => done(Err(error)),
    };
    store.submit_clear_all(Box::new(next));
    None
}
