//! Whether the store can serve checks: a call like any other, that writes a key which lives for a second.
//!
//! A server that is full, that is read-only, or whose user may not run scripts answers PING all the same. A ping also finds
//! out whether the server may evict keys by now.

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

/// How many keys are tried to find one of each shard. A shard with so few slots that none is found is not asked.
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

/// Asks every primary, one after the other. The first that does not serve says why.
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
