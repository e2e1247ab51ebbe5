//! Tells when a key comes near a limit, once in each window, if the limiter has `on_near_limit`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::LimiterId;
use crate::decision::Decision;
use crate::plan::Plan;
use crate::process::clock::ManualClock;
use crate::process::log::Log;
use crate::resilience::NearKeys;
use crate::store::request::Answer;

/// The part of a limit from which on it is near.
pub(super) const NEAR_LIMIT: f64 = 0.8;

/// Called with each key that comes near a limit.
pub(super) type NearListener = Arc<dyn Fn(&NearLimit) + Send + Sync>;

/// A key has used so much of a limit that it is near.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearLimit {
    /// The policy.
    pub policy: String,
    /// The key.
    pub key: String,
    /// The limit that has the least left in proportion, as a notation.
    pub notation: String,
    /// The units of that limit.
    pub limit: u64,
    /// The units that are left of it.
    pub remaining: u64,
    /// The time until all its units are back. Until then the listener is not called for this policy and key again.
    pub reset_after: Duration,
}

/// Calls the listener at most once for each policy, key and window.
pub(super) struct NearLimits {
    pub(super) limiter: LimiterId,
    pub(super) part: f64,
    pub(super) listener: NearListener,
    pub(super) clock: Option<Arc<ManualClock>>,
    pub(super) log: Arc<Log>,
    pub(super) started: Instant,
    pub(super) keys: NearKeys,
}

impl NearLimits {
    /// Looks at an answer that admitted.
    pub(super) fn see(&self, plan: &Arc<Plan>, key: &str, answer: &Answer) {
        if plan.is_unlimited() {
            return;
        }
        let decision = Decision::new(self.limiter, Arc::clone(plan), key, 1, answer.clone());
        let (limit, remaining) = (decision.limit(), decision.remaining());
        // A quotient, because 0.7 * 10 is not quite 7.
        if limit == 0 || (limit.saturating_sub(remaining) as f64 / limit as f64) < self.part {
            return;
        }
        let now = self.clock.as_ref().map_or_else(|| self.started.elapsed().as_micros() as u64, |clock| clock.micros());
        let reset_after = decision.reset_after();
        if self.keys.note(plan, key, now, now.saturating_add(reset_after.as_micros() as u64)) {
            let notation = decision.binding_limit().to_string();
            let (policy, key) = (decision.policy().to_owned(), key.to_owned());
            let near = NearLimit { policy, key, notation, limit, remaining, reset_after };
            if catch_unwind(AssertUnwindSafe(|| (self.listener)(&near))).is_err() {
                self.log.warn("on_near_limit panicked");
            }
        }
    }
}
