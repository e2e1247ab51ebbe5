//! How a task waits for the answer of a store.

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::store::completion::WakeTarget;

/// Waits for the result of a call that is submitted.
pub(super) async fn awaited<T: Send + 'static>(
    submit: impl FnOnce(Box<dyn FnOnce(Result<T>) -> WakeTarget + Send>),
) -> Result<T> {
    let (answer, answered) = oneshot::channel();
    submit(Box::new(move |result| sent(answer, result)));
    answered.await.unwrap_or_else(|_| Err(gone()))
}

pub(super) fn sent<T>(answer: oneshot::Sender<T>, result: T) -> WakeTarget {
    // The receiver is gone when the call was cancelled.
    drop(answer.send(result));
    None
}

pub(super) fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the limiter was closed before the store answered")
}
