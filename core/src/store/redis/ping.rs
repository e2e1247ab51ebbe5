//! Finds out if the store can serve checks. A ping is a call like any other, and its key lives for a second.
//!
//! The command PING is not enough: a server that is full or read-only, or that forbids its user to run scripts, still
//! answers it. This ping also finds out if the server may evict keys by now.

use std::sync::Arc;
use std::time::Instant;

use once_cell::race::OnceBox;
use smallvec::smallvec;

use super::io::BlockingCalls;
use super::protocol::{CallState, hash_slot};
use super::script::{Grouping, Request};
use crate::error::Result;
use crate::plan::Plan;
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::request::{Entry, Operation};

/// The most keys to try until there is one for each shard. A shard with too few slots to find one is not asked.
const MAX_TRIES: u32 = 65_536;

fn plan() -> &'static Arc<Plan> {
    static PLAN: OnceBox<Arc<Plan>> = OnceBox::new();
    PLAN.get_or_init(|| Box::new(plan_of(&Policy::parse("fixed-window 1000000/s").expect("a policy that is right"))))
}

/// A charge of a key that no caller uses.
pub(super) fn request(prefix: &str, number: u32) -> Request {
    let key = &format!("\0tidegate ping {number}");
    Request::new(&prefix.into(), &Entry { plan: plan(), key, operation: Operation::charge(1) })
}

/// Asks the primaries one after the other. Returns the error of the first that does not serve the call.
pub(super) fn all(calls: &BlockingCalls, deadline: Instant) -> Result<()> {
    let ask = |request, slot| -> Result<()> {
        let call = CallState::new(deadline, false);
        let answers = calls.run(smallvec![request], Grouping::Independent, None, slot, call)?;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    };
    let topology = calls.topology(deadline)?;
    let mut missing: Vec<bool> = vec![true; topology.shards().len()];
    for number in 0..MAX_TRIES {
        let request = request(calls.prefix(), number);
        let slot = hash_slot(request.redis_key.as_bytes());
        if let Some(shard) = topology.shard_index(slot)
            && std::mem::take(&mut missing[shard])
        {
            ask(request, slot)?;
            calls.check_eviction(&topology.shards()[shard].primary, deadline);
            if !missing.contains(&true) {
                break;
            }
        }
    }
    Ok(())
}
