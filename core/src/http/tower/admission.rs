//! Asks the limits of a request, and does what is left to do when its response is known.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;

use super::body::HeldUnits;
use super::request_limits::{LimitEntry, RequestLimits};
use crate::decision::Decision;
use crate::error::Result;
use crate::http::settling::settle_to;
use crate::limiter::{CheckOptions, Cost, Hold, HoldAnswer};
use crate::plan::Plan;
use crate::process::clock::Signal;

/// What became of a request.
pub(super) enum Admission {
    /// No limit applies to it.
    Unlimited,
    Admitted(Box<AdmittedRequest>),
    Denied(Box<Decision>),
}

/// An admitted request.
pub(super) struct AdmittedRequest {
    /// What the service is told.
    pub(super) decision: Decision,
    /// What was charged, for refunds.
    charged: Option<Decision>,
    pub(super) held: Option<HeldUnits>,
}

impl RequestLimits {
    /// Asks every limit of a request. A hold comes first: so no other call sees a charge of a request that a hold refuses.
    /// `policies` gets the policies of the request, also where no Decision names them.
    pub(super) async fn admit(&self, request: &Parts, policies: &mut Vec<Arc<Plan>>) -> Result<Admission> {
        if !self.applies_to(request) {
            return Ok(Admission::Unlimited);
        }
        let entries = self.entries(request)?;
        policies.extend(entries.iter().map(|entry| Arc::clone(&entry.plan)));
        if entries.is_empty() {
            return Ok(Admission::Unlimited);
        }
        let cost = self.cost_of(request, policies)?;
        if cost.is_nothing() {
            // There is nothing to limit, such as an empty batch.
            policies.clear();
            return Ok(Admission::Unlimited);
        }
        let is_held: Vec<bool> = entries.iter().map(|entry| entry.holds).collect();
        let (holding, plain): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.holds);
        let meta = self.meta.as_ref().and_then(|read| read(request));
        let class = self.priority.as_ref().and_then(|read| read(request));
        let mut holds = Vec::with_capacity(holding.len());
        for LimitEntry { policy, key, plan, .. } in holding {
            match self.limiter.hold_with(&policy, &key, &options_of(&cost, class.as_ref(), &plan)).await {
                Ok(HoldAnswer::Held(hold)) => holds.push(hold),
                refused => {
                    self.give_back(&holds).await;
                    return refused.map(|denied| Admission::Denied(Box::new(denied.decision().clone())));
                }
            }
        }
        let charged = self.check(plain, (&cost, class.as_ref()), meta).await;
        if !charged.as_ref().is_ok_and(|charged| charged.as_ref().is_none_or(Decision::allowed)) {
            self.give_back(&holds).await;
        }
        let charged = charged?;
        if let Some(denied) = charged.as_ref().filter(|decision| !decision.allowed()) {
            return Ok(Admission::Denied(Box::new(denied.clone())));
        }
        let Some(decision) = whole(&is_held, &holds, charged.as_ref()) else { return Ok(Admission::Unlimited) };
        let delay = decision.decisions().iter().map(Decision::delay).max().unwrap_or_else(|| decision.delay());
        if delay > Duration::ZERO {
            let signal = Arc::new(Signal::default());
            signal.wait_async(signal.count(), Some(delay)).await;
        }
        Ok(Admission::Admitted(Box::new(AdmittedRequest { decision, charged, held: HeldUnits::of(holds) })))
    }

    async fn check(
        &self,
        entries: Vec<LimitEntry>,
        (cost, class): (&Cost, Option<&String>),
        meta: Option<Vec<u8>>,
    ) -> Result<Option<Decision>> {
        Ok(match &entries[..] {
            [] => None,
            [LimitEntry { policy, key, plan, .. }] => {
                let options = CheckOptions { meta, ..options_of(cost, class, plan) };
                Some(self.limiter.check_with(policy, key, &options).await?)
            }
            several => {
                let entries =
                    several.iter().map(|entry| (&entry.policy, &entry.key, options_of(cost, class, &entry.plan)));
                Some(self.limiter.check_all(entries).await?)
            }
        })
    }

    /// Gives back what the other limits of these policies were charged. The holds end when they are dropped.
    async fn give_back(&self, holds: &[Hold]) {
        for hold in holds {
            settle_to(&self.limiter, hold.decision(), None).await;
        }
    }

    /// Refunds or settles what a request was charged, once the head of its response is known. Returns whether it did.
    pub(super) async fn follow_up(&self, admitted: &AdmittedRequest, response: &response::Parts) -> bool {
        let refunds = self.refund_when.as_ref().is_some_and(|when| when(response));
        let actual = self.settle.as_ref().filter(|_| !refunds).and_then(|read| read(response));
        let is_due = refunds || actual.is_some();
        if is_due {
            let charged: Vec<Decision> = admitted.all_charged().cloned().collect();
            self.settle_all(&charged, actual.as_ref()).await;
        }
        is_due
    }

    /// Settles all that a request was charged.
    pub(super) async fn settle_all(&self, charged: &[Decision], actual: Option<&Cost>) {
        let plans = charged.iter().flat_map(|decision| decision.entries().iter().map(|entry| &**entry.plan()));
        if let Some(Err(error)) = actual.map(|cost| cost.check_counted(plans)) {
            tracing::warn!(target: "tidegate", %error, "a request was not settled");
            return;
        }
        for decision in charged {
            settle_to(&self.limiter, decision, actual).await;
        }
    }
}

/// What a policy is asked. One without classes has nothing to leave free.
fn options_of(cost: &Cost, class: Option<&String>, plan: &Plan) -> CheckOptions {
    let priority = class.filter(|_| plan.policy.options().priorities.is_some()).cloned();
    CheckOptions { priority, ..cost.share_of(plan).into() }
}

impl AdmittedRequest {
    /// The Decisions that charged something.
    pub(super) fn all_charged(&self) -> impl Iterator<Item = &Decision> {
        let holds = self.held.as_ref().map(HeldUnits::holds).unwrap_or_default();
        holds.iter().map(Hold::decision).chain(&self.charged)
    }
}

/// One Decision of all that was asked, in the order in which the policies are written: those that are held, and the others.
fn whole(is_held: &[bool], holds: &[Hold], charged: Option<&Decision>) -> Option<Decision> {
    let mut holds = holds.iter().map(Hold::decision);
    let mut charged = charged.map(Decision::entries).unwrap_or_default().iter();
    let next = |is_held: &bool| if *is_held { holds.next() } else { charged.next() };
    let mut all: Vec<Decision> = is_held.iter().filter_map(next).cloned().collect();
    if all.len() == 1 { all.pop() } else { Decision::of_all(all) }
}
