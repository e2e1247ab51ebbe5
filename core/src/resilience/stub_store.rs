//! A store for the tests of the layers: a test takes its calls, and answers them or loses them.

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::{BatchCompletion, Completion, MakeCompletion, PingCompletion, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, OwnedEntry};

/// A call that no test has taken.
pub(super) struct Message {
    pub(super) entry: OwnedEntry,
    pub(super) completion: Completion,
}

/// A store whose answers a test gives.
#[derive(Default)]
pub(super) struct StubStore {
    pub(super) outgoing: Mutex<Vec<Message>>,
}

impl StubStore {
    /// Answers the call that has waited longest.
    pub(super) fn answer(&self, result: Result<Answer>) {
        let message = self.outgoing.lock().remove(0);
        wake((message.completion)(result));
    }
}

fn never() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the tests do not call this")
}

impl Store for StubStore {
    fn ask(&self, _: &Entry<'_>, _: CallContext<'_>) -> Result<Answer> {
        Err(never())
    }

    fn ask_all(&self, _: &[Entry<'_>], _: CallContext<'_>) -> Result<Vec<Answer>> {
        Err(never())
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
        wake(done(Err(never())));
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
