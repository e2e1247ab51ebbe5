//! A store for the tests of the layers: it answers when it is told to.

use parking_lot::Mutex;

use super::layer::Notes;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Answer, BatchCompletion, Completion, Entry, MakeCompletion, PingCompletion, Store, tell};

/// See the module.
#[derive(Default)]
pub(super) struct Stub {
    waiting: Mutex<Vec<Completion>>,
}

impl Stub {
    /// Answers whoever has waited longest.
    pub(super) fn answer(&self, result: Result<Answer>) {
        let done = self.waiting.lock().remove(0);
        tell(done(result));
    }
}

fn never() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "this is not asked in the tests")
}

impl Store for Stub {
    fn ask(&self, _: &Entry<'_>, _: Option<u64>) -> Result<Answer> {
        Err(never())
    }

    fn ask_all(&self, _: &[Entry<'_>], _: Option<u64>) -> Result<Vec<Answer>> {
        Err(never())
    }

    fn submit(
        &self,
        _: &Entry<'_>,
        _: Option<u64>,
        notes: &mut Notes,
        done: MakeCompletion<'_>,
    ) -> Option<Result<Answer>> {
        self.waiting.lock().push(done(*notes));
        None
    }

    fn submit_all(&self, _: &[Entry<'_>], _: Option<u64>, done: BatchCompletion) {
        tell(done(Err(never())));
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn submit_ping(&self, done: PingCompletion) {
        tell(done(Ok(())));
    }

    fn close(&self) {}

    fn try_immediate(&self, _: &Entry<'_>, _: Option<u64>) -> Option<Result<Answer>> {
        None
    }
}
