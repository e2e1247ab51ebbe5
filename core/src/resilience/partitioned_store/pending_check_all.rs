//! A `check_all` over several stores, step by step. If its caller goes on, the completion of each step begins the next
//! one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::process::lock::Mutex;

use super::PartitionedStore;
use super::partition_progress::{CheckAllStep, PartitionProgress, Repair};
use crate::error::{Error, ErrorKind, Result};
use crate::resilience::layer::{ask, ask_all, submit, submit_all, submit_then};
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::completion::{Completion, WakeTarget, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation, OwnedEntry, borrowed, owned};

/// A `check_all` under way, between two of its steps.
pub(super) struct PendingCheckAll {
    stores: Arc<[Arc<dyn Store>]>,
    entries: Vec<OwnedEntry>,
    now: Option<u64>,
    deadline: Instant,
    timeout: Duration,
    progress: Mutex<PartitionProgress>,
    /// True if its caller waits on its thread.
    waits_here: bool,
    done: Mutex<Option<Completion<Vec<Answer>>>>,
}

impl PendingCheckAll {
    /// Takes all steps up to the first that has to wait.
    pub(super) fn start(
        store: &impl PartitionedStore,
        entries: &[Entry<'_>],
        context: &CallContext<'_, Vec<Answer>>,
        states: &LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        let done = match context.waits {
            Waits::Never => return None,
            Waits::Here => None,
            Waits::Later(make) => Some(make(*states)),
        };
        let timeout = store.timeout();
        let pending = Arc::new(Self {
            stores: Arc::clone(store.stores()),
            entries: owned(entries),
            now: context.now,
            deadline: context.deadline.unwrap_or_else(|| Instant::now() + timeout),
            timeout,
            progress: Mutex::new(PartitionProgress::new(entries, |entry| {
                (store.part_of(entry), store.store_of(entry))
            })),
            waits_here: done.is_none(),
            done: Mutex::new(done),
        });
        pending.go_on()
    }

    fn go_on(self: &Arc<Self>) -> Option<Result<Vec<Answer>>> {
        loop {
            let step = self.progress.lock().next_step();
            match step {
                CheckAllStep::Charge { store, entries } => {
                    let result = self.charge(&self.stores[store], &entries)?;
                    self.charged(result);
                }
                CheckAllStep::Repair(repair) => {
                    let result = self.repair(&repair)?;
                    self.progress.lock().repaired(&repair, result);
                }
                CheckAllStep::Finish(result) => return Some(result.map(|()| self.answers())),
            }
        }
    }

    /// Goes on after a completion has done a step.
    fn completed(self: &Arc<Self>) -> WakeTarget {
        let result = self.go_on()?;
        let done = self.done.lock().take()?;
        done(result)
    }

    fn charge(self: &Arc<Self>, store: &Arc<dyn Store>, numbers: &[usize]) -> Option<Result<Vec<Answer>>> {
        if let Err(late) = self.has_time() {
            return Some(Err(late));
        }
        let entries: Vec<Entry<'_>> = numbers.iter().map(|number| self.entries[*number].entry()).collect();
        let context = CallContext::until(self.now, self.deadline);
        if self.waits_here {
            return Some(ask_all(&**store, &entries, context));
        }
        let this = Arc::clone(self);
        submit_all(store, &entries, context, move |result| {
            this.charged(result);
            this.completed()
        })
    }

    fn charged(&self, result: Result<Vec<Answer>>) {
        self.progress.lock().charged(&borrowed(&self.entries), result);
    }

    /// After a failure, a caller that goes on does not wait for repairs.
    fn repair(self: &Arc<Self>, repair: &Repair) -> Option<Result<Answer>> {
        let (entry, store) = (self.entries[repair.entry].with(repair.operation.clone()), &self.stores[repair.store]);
        let is_late =
            self.has_time().err().or_else(|| if self.waits_here { None } else { self.progress.lock().failure() });
        if let Some(error) = is_late {
            refund_later(store, &entry, self.now, self.timeout);
            return Some(Err(error));
        }
        let context = CallContext::until(self.now, self.deadline);
        if self.waits_here {
            return Some(ask(&**store, &entry, context));
        }
        submit(store, &entry, context, || {
            let this = Arc::clone(self);
            let repair = repair.clone();
            move |_: &Arc<dyn Store>, _, result| {
                this.progress.lock().repaired(&repair, result);
                this.completed()
            }
        })
    }

    fn answers(&self) -> Vec<Answer> {
        self.progress.lock().answers(&borrowed(&self.entries))
    }

    /// Fails if the deadline has passed, because a call that is sent without any time left may still be charged.
    fn has_time(&self) -> Result<()> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        let message = "the stores that were asked first took all the time of this call, so the others were not asked: raise \
            the timeout";
        Err(Error::new(ErrorKind::StoreTimeout, message))
    }
}

/// Refunds the charge of a call that has no time left. No caller waits for it, so it has its own time.
fn refund_later(store: &Arc<dyn Store>, entry: &Entry<'_>, now: Option<u64>, timeout: Duration) {
    if let Operation::GiveBack { .. } = entry.operation {
        wake(submit_then(store, entry, CallContext::until(now, Instant::now() + timeout), |_| None));
    }
}
