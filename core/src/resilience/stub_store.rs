//! A store for the tests of the layers: a test takes its calls, and answers them or loses them.

use std::time::Instant;

use crate::process::lock::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::call_context::{CallContext, Waits};
use crate::store::completion::{Completion, wake};
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, OwnedEntry};

/// A call that no test has taken.
pub(super) struct Message {
    pub(super) entry: OwnedEntry,
    pub(super) completion: Completion<Answer>,
}

/// A store that answers when a test decides.
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
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        match context.waits {
            Waits::Never => {}
            Waits::Here => return Some(Err(never())),
            Waits::Later(make) => {
                self.outgoing.lock().push(Message { entry: OwnedEntry::from(entry), completion: make(*states) });
            }
        }
        None
    }

    fn begin_all(
        &self,
        _: &[Entry<'_>],
        _: CallContext<'_, Vec<Answer>>,
        _: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        Some(Err(never()))
    }

    fn ping(&self, _: Option<Instant>) -> Result<()> {
        Ok(())
    }

    fn clear_all(&self) -> Result<()> {
        Ok(())
    }

    fn change_override(&self, _: &Entry<'_>, _: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn overrides(&self, _: &Entry<'_>, _: Option<u64>) -> Result<Answer> {
        Ok(Answer::default())
    }
}
