//! Questions to the servers of a store, and their stored values.

pub use crate::store::redis::{
    ServerAddress, ServerConnection, ShardServers, StoreServers, pattern_of_keys, redis_key, scanned_keys,
    stored_limits,
};

use crate::decision::{Decision, LimiterId};
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::{KeyOverride, Policy};
use crate::store::redis::{stored_answer, stored_override};

/// The answer that a value stored in Redis gives for its key, as a peek at `now` would, in microseconds since 1970.
/// `None` if it is no value of this policy's limits, and for a policy with a `sliding-log`, because that log is in
/// another key. If the key has an override, that decides.
#[must_use]
pub fn stored_decision(policy: &Policy, key: &str, value: &[u8], now: u64) -> Option<Decision> {
    let mut plan = plan_of(policy);
    let mut answer = stored_answer(&plan, value, now)?;
    if let Some(text) = stored_override(value, now) {
        plan = Plan::overriding(&plan, &KeyOverride::parse(text).ok()?, text.to_owned()).ok()?;
        answer = stored_answer(&plan, value, now)?;
    }
    Some(Decision::new(LimiterId::ELSEWHERE, plan, key, 1, answer))
}
