//! A `check_all` over several stores that does not block its thread: each step is taken by the completion of the step
//! before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::partition_progress::{PartitionProgress, Repair};
use super::{PartitionedStore, has_time, refund_later};
use crate::error::{Error, Result};
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, WakeTarget};
use crate::store::request::{Answer, Entry, OwnedEntry, borrowed, owned};
use crate::store::{Store, submit_then};

/// A `check_all` under way, between two of its steps.
pub(super) struct PendingCheckAll {
    stores: Arc<[Arc<dyn Store>]>,
    entries: Vec<OwnedEntry>,
    now: Option<u64>,
    deadline: Instant,
    timeout: Duration,
    progress: Mutex<PartitionProgress>,
    done: Mutex<Option<BatchCompletion>>,
}

impl PendingCheckAll {
    pub(super) fn start(
        store: &impl PartitionedStore,
        entries: &[Entry<'_>],
        progress: PartitionProgress,
        now: Option<u64>,
        deadline: Instant,
        done: BatchCompletion,
    ) -> WakeTarget {
        let (stores, timeout) = (Arc::clone(store.stores()), store.timeout());
        let (entries, progress, done) = (owned(entries), Mutex::new(progress), Mutex::new(Some(done)));
        Arc::new(Self { stores, entries, now, deadline, timeout, progress, done }).charge(0)
    }

    fn charge(self: Arc<Self>, part: usize) -> WakeTarget {
        if let Err(late) = has_time(self.deadline) {
            return self.charged(part, Err(late));
        }
        let entries = borrowed(&self.entries);
        let (store, of_part) = {
            let progress = self.progress.lock();
            (progress.parts()[part].store, progress.entries_of(part, &entries))
        };
        let next = Arc::clone(&self);
        let done = Box::new(move |result| next.charged(part, result));
        self.stores[store].submit_all(&of_part, CallContext::until(self.now, self.deadline), done);
        None
    }

    fn charged(self: Arc<Self>, part: usize, result: Result<Vec<Answer>>) -> WakeTarget {
        let mut progress = self.progress.lock();
        let entries = borrowed(&self.entries);
        let failure = match result.map(|answers| progress.record(part, &entries, answers)) {
            Ok(true) => {
                let is_last = part + 1 == progress.parts().len();
                drop((progress, entries));
                return if is_last { self.finish(None) } else { self.charge(part + 1) };
            }
            Ok(false) => None,
            Err(error) => Some(error),
        };
        let repairs = progress.repairs(part, &entries, failure.is_none());
        drop((progress, entries));
        self.repair(failure, repairs.into())
    }

    /// One repair after the other. After a failure the caller does not wait for them.
    fn repair(self: Arc<Self>, failure: Option<Error>, mut repairs: VecDeque<Repair>) -> WakeTarget {
        if failure.is_some() || has_time(self.deadline).is_err() {
            for repair in repairs {
                let entry = self.entries[repair.entry].with(repair.operation);
                refund_later(&self.stores[repair.store], &entry, self.now, self.timeout);
            }
            return self.finish(failure);
        }
        let Some(repair) = repairs.pop_front() else { return self.finish(failure) };
        let next = Arc::clone(&self);
        let (entry, store) = (self.entries[repair.entry].with(repair.operation.clone()), &self.stores[repair.store]);
        submit_then(store, &entry, CallContext::until(self.now, self.deadline), move |result| {
            next.progress.lock().repaired(&repair, result);
            next.repair(failure, repairs)
        })
    }

    fn finish(&self, failure: Option<Error>) -> WakeTarget {
        let done = self.done.lock().take()?;
        let answers = self.progress.lock().finish(&borrowed(&self.entries));
        done(failure.map_or(Ok(answers), Err))
    }
}
