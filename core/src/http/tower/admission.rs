//! Asks the limits of a request, and refunds or settles its charge when its response is known.

use std::sync::Arc;

use http::request::Parts;
use http::response;

use super::request_limits::{LimitEntry, RequestLimits};
use crate::decision::Decision;
use crate::error::Result;
use crate::flow::{Admission, give_back};
use crate::http::settling::settle_to;
use crate::limiter::{CheckOptions, Cost, PolicyInForce};
use crate::process::clock::Signal;
use crate::process::waits::Waits;

impl RequestLimits {
    /// Asks every limit of a request. `None` if no limit applies to it. `policies` gets the policies of the request,
    /// also if no Decision names them.
    pub(super) async fn admit(&self, request: &Parts, policies: &mut Vec<PolicyInForce>) -> Result<Option<Admission>> {
        if !self.applies_to(request) {
            return Ok(None);
        }
        let entries = self.entries(request)?;
        policies.extend(entries.iter().map(|entry| entry.in_force.clone()));
        if entries.is_empty() {
            return Ok(None);
        }
        let cost = self.cost_of(request, policies)?;
        if cost.is_nothing() {
            // There is nothing to limit, such as an empty batch.
            policies.clear();
            return Ok(None);
        }
        let meta = self.meta.as_ref().and_then(|read| read(request));
        let priority = self.priority.as_ref().and_then(|read| read(request));
        let asked = entries.into_iter().map(|LimitEntry { policy, key, in_force }| {
            let options = cost.share_of(&in_force).into();
            (policy, key, CheckOptions { meta: meta.clone(), priority: priority.clone(), ..options })
        });
        let admission = self.limiter.admit(&asked.collect::<Vec<_>>(), false).await?;
        let delay = admission.delay();
        if !delay.is_zero() {
            let signal = Arc::new(Signal::default());
            signal.wait_async(signal.count(), Some(delay)).await;
        }
        Ok(Some(admission))
    }

    /// Refunds or settles the charge of a request, once the head of its response is known. Returns true if it did.
    pub(super) async fn follow_up(&self, charged: &Decision, response: &response::Parts) -> bool {
        if self.refund_when.as_ref().is_some_and(|when| when(response)) {
            give_back(&self.limiter.core, charged, Waits::TASK).await;
            return true;
        }
        let actual = self.settle.as_ref().and_then(|read| read(response));
        if let Some(actual) = &actual {
            self.settle_all(charged, actual).await;
        }
        actual.is_some()
    }

    /// Settles the charge of a request.
    pub(super) async fn settle_all(&self, charged: &Decision, actual: &Cost) {
        settle_to(&self.limiter, charged, actual).await;
    }
}
