//! No panic crosses from here into a host. If a call panics, its caller gets an error. See docs/adr/0029.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind, Result};
use crate::store::completion::{WakeTarget, wake};

/// Runs a call on its caller's thread. State that it shares with other calls is behind locks that a panic releases.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(run).unwrap_or_else(|| Err(broken()))
}

/// The result of `run`, unless it panics.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

fn broken() -> Error {
    Error::new(
        ErrorKind::StoreRejected,
        "Tidegate failed while it worked on this call, which may have been counted. This is a defect of Tidegate: please \
         report it with the panic on the standard error",
    )
}

/// A caller of the engine. It gets an answer in any case, even if a panic drops its call.
pub(crate) struct Caller<T>(Option<Box<dyn FnOnce(Result<T>) -> WakeTarget + Send>>);

impl<T> Caller<T> {
    pub(crate) fn new(complete: Box<dyn FnOnce(Result<T>) -> WakeTarget + Send>) -> Self {
        Self(Some(complete))
    }

    pub(crate) fn complete(mut self, result: Result<T>) -> WakeTarget {
        let complete = self.0.take()?;
        caught(|| complete(result)).flatten()
    }
}

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        if let Some(complete) = self.0.take() {
            caught(|| wake(complete(Err(broken()))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_caller_whose_call_panics_gets_an_error() {
        let error = guarded::<()>(|| panic!("on the thread of its caller")).expect_err("it panics");
        assert_eq!(error.kind(), ErrorKind::StoreRejected);
        assert!(!error.did_not_run() && error.message().contains("please report it"), "{error}");
        let (tells, told) = mpsc::channel();
        let caller = Caller::<()>::new(Box::new(move |answer| {
            tells.send(answer).expect("it is asked");
            None
        }));
        assert!(caught(move || -> () { panic!("with {:p}", &caller) }).is_none());
        assert_eq!(told.recv(), Ok(Err(error)));
        let fails = Caller::<()>::new(Box::new(|_| panic!("in the program")));
        assert!(caught(|| fails.complete(Ok(()))).is_some_and(|woken| woken.is_none()));
    }
}
