//! The store of a simulated process: what it asks is a message, which the world delivers when it wants, or loses.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, Completion, MakeCompletion, PingCompletion, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, OwnedEntry};

/// A message of a process that the world has not taken.
pub(in crate::resilience::leases) struct Message {
    pub(in crate::resilience::leases) entry: OwnedEntry,
    pub(in crate::resilience::leases) completion: Completion,
}

/// See the module.
#[derive(Default)]
pub(in crate::resilience::leases) struct Network {
    pub(in crate::resilience::leases) outgoing: Mutex<Vec<Message>>,
}

fn unused() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the simulation does not call this")
}

impl Store for Arc<Network> {
    fn ask(&self, _: &Entry<'_>, _: CallContext<'_>) -> Result<Answer> {
        Err(unused())
    }

    fn ask_all(&self, _: &[Entry<'_>], _: CallContext<'_>) -> Result<Vec<Answer>> {
        Err(unused())
    }

    fn submit(
        &self,
        entry: &Entry<'_>,
        _: CallContext<'_>,
        states: &mut LayerStates,
        make: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        self.outgoing.lock().push(Message { entry: OwnedEntry::from(entry), completion: make(*states) });
        None
    }

    fn submit_all(&self, _: &[Entry<'_>], _: CallContext<'_>, done: BatchCompletion) {
        wake(done(Err(unused())));
    }

    fn ping(&self, _: CallContext<'_>) -> Result<()> {
        Ok(())
    }

    fn submit_ping(&self, _: CallContext<'_>, done: PingCompletion) {
        wake(done(Ok(())));
    }

    fn clear_all(&self) -> Result<()> {
        Ok(())
    }

    fn submit_clear_all(&self, done: PingCompletion) {
        wake(done(Ok(())));
    }

    fn close(&self) {}

    fn try_immediate(&self, _: &Entry<'_>, _: CallContext<'_>) -> Option<Result<Answer>> {
        None
    }
}
