//! Settles requests, of layers for services and for clients.

use std::future::Future;

use crate::decision::Decision;
use crate::limiter::{AsyncLimiter, Cost};

/// Settles a request for what it has cost; for nothing at all without a cost.
pub(super) async fn settle_to(limiter: &AsyncLimiter, decision: &Decision, actual: Option<&Cost>) {
    // A shadow policy that would have denied was not charged.
    if decision.shadow() {
        return;
    }
    let settled = match actual {
        Some(number) if number.is_number() => limiter.settle(decision, number.clone()).await,
        actual => {
            let entries = decision.entries().iter().map(Decision::plan);
            let costs: Vec<Option<Cost>> = match actual {
                Some(units) => entries.map(|plan| units.actual_share_of(plan)).collect(),
                None => entries.map(|plan| Some(Cost::of_each(&plan.policy, 0))).collect(),
            };
            limiter.settle_each(decision, &costs).await
        }
    };
    if let Err(error) = settled {
        tracing::warn!(target: "tidegate", %error, "units of a request could not be given back or charged");
    }
}

/// Settles for a caller that has gone.
pub(super) fn in_background(settle: impl Future<Output = ()> + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(settle)),
        Err(_) => {
            tracing::warn!(target: "tidegate", "a body ended outside of a tokio runtime: its request is not settled")
        }
    }
}
