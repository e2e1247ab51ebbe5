//! Settles requests, for the layers of services and of clients.

use std::future::Future;

use crate::decision::Decision;
use crate::limiter::{AsyncLimiter, Cost};
use crate::process::waits::Waits;

/// Settles a request to its actual cost.
pub(super) async fn settle_to(limiter: &AsyncLimiter, decision: &Decision, actual: &Cost) {
    let settled = limiter.core.settle_request(decision, actual, Waits::TASK).await;
    if let Err(error) = settled {
        tracing::warn!(target: "tidegate", %error, "a request was not settled");
    }
}

/// Settles in the background, because the caller has gone.
pub(super) fn in_background(settle: impl Future<Output = ()> + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(settle)),
        Err(_) => {
            tracing::warn!(target: "tidegate", "a body ended outside of a tokio runtime: its request is not settled")
        }
    }
}
