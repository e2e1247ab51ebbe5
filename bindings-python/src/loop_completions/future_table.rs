//! The futures that wait for answers, by ticket.

use std::any::Any;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use tidegate::Result;
use tidegate::host::Outcome;

use super::ConvertOutcome;
use crate::error::raise;

/// A future of the loop that waits for an answer.
pub(super) struct PendingFuture {
    pub(super) future: Py<PyAny>,
    pub(super) convert: ConvertOutcome,
    /// Kept alive until the answer has arrived, where no task of the core does that.
    pub(super) _limiter: Option<Arc<dyn Any + Send + Sync>>,
}

impl PendingFuture {
    /// Sets the result or the exception of the future, unless it was cancelled.
    pub(super) fn set_result(self, py: Python<'_>, outcome: Result<Outcome>) -> PyResult<()> {
        let future = self.future.bind(py);
        let set = match outcome.map_err(raise).and_then(|outcome| (self.convert)(py, outcome)) {
            Ok(object) => future.call_method1(intern!(py, "set_result"), (object,)),
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),)),
        };
        match set {
            // It was cancelled before. The result is dropped, which gives back a hold.
            Err(_) if future.call_method0(intern!(py, "done"))?.is_truthy()? => Ok(()),
            set => set.map(drop),
        }
    }
}

/// Futures by ticket. The lower half of a ticket is a slot, the upper half says how often the slot was used before.
#[derive(Default)]
pub(super) struct FutureTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    uses: u32,
    future: Option<PendingFuture>,
}

impl FutureTable {
    /// A ticket for a future that `put` may bring.
    pub(super) fn reserve(&mut self) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        u64::from(self.slots[index as usize].uses) << 32 | u64::from(index)
    }

    pub(super) fn put(&mut self, ticket: u64, future: PendingFuture) {
        self.slots[ticket as u32 as usize].future = Some(future);
    }

    /// The future with this ticket. The ticket is not valid any more.
    pub(super) fn take(&mut self, ticket: u64) -> Option<PendingFuture> {
        let slot = self.slots.get_mut(ticket as u32 as usize)?;
        if u64::from(slot.uses) != ticket >> 32 {
            return None;
        }
        slot.uses = slot.uses.wrapping_add(1);
        self.free.push(ticket as u32);
        slot.future.take()
    }

    pub(super) fn traverse(&self, visit: &pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        self.slots.iter().filter_map(|slot| slot.future.as_ref()).try_for_each(|pending| visit.call(&pending.future))
    }
}
