//! Settles requests, for the layers of services and of clients.

use std::future::Future;

use crate::decision::Decision;
use crate::limiter::{AsyncLimiter, Cost};

/// Settles a request to its actual cost. A shadow policy that would have denied was charged nothing, and stays so.
pub(super) async fn settle_to(limiter: &AsyncLimiter, decision: &Decision, actual: &Cost) {
    let entries = decision.entries();
    let settled = if actual.is_number() && !entries.iter().any(Decision::shadow) {
        limiter.settle(decision, actual.clone()).await
    } else {
        let share = |entry: &Decision| {
            if actual.is_number() { Some(actual.clone()) } else { actual.actual_share_of(&entry.plan().policy) }
        };
        let costs: Vec<Option<Cost>> =
            entries.iter().map(|entry| (!entry.shadow()).then(|| share(entry)).flatten()).collect();
        limiter.settle_each(decision, &costs).await
    };
    if let Err(error) = settled {
        tracing::warn!(target: "tidegate", %error, "units of a request could not be given back or charged");
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
