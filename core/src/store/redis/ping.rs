//! Whether the store can do what it is there for: a call like any other, that writes a key which lives for a second.
//!
//! A server that is full, that only reads, or whose user may not run scripts answers PING all the same.

use std::sync::Arc;
use std::time::Instant;

use once_cell::sync::Lazy;

use super::chart::slot_of;
use super::pool::Pools;
use super::script::{Grouping, Request};
use crate::error::Result;
use crate::plan::Plan;
use crate::plan_cache::plan_of;
use crate::policy::Policy;
use crate::store::request::{Entry, Operation};

/// Numbers that are tried to find a key of a shard. One that has fewer slots than that finds is not asked.
const TRIES: u32 = 65_536;

static PLAN: Lazy<Arc<Plan>> =
    Lazy::new(|| plan_of(&Policy::parse("fixed-window 1000000/s").expect("a policy that is right")));

/// A charge of a key of nobody's.
pub(super) fn request(prefix: &str, number: u32) -> Request {
    let entry =
        Entry { plan: &PLAN, key: &format!("\0tidegate ping {number}"), operation: Operation::Charge { cost: 1 } };
    Request::new(prefix, &entry)
}

/// Asks every primary. The first that does not serve says why.
pub(super) fn all(pools: &Pools, deadline: Instant) -> Result<()> {
    let ask = |request, slot| -> Result<()> {
        let answers = pools.run(vec![request], Grouping::Independent, None, slot, false, deadline)?;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    };
    let chart = pools.chart(deadline)?;
    let mut missing: Vec<bool> = vec![true; chart.shards().len()];
    if missing.len() == 1 {
        return ask(request(pools.prefix(), 0), slot_of(request(pools.prefix(), 0).redis_key.as_bytes()));
    }
    for number in 0..TRIES {
        let request = request(pools.prefix(), number);
        let slot = slot_of(request.redis_key.as_bytes());
        if let Some(shard) = chart.shard_of(slot)
            && std::mem::take(&mut missing[shard])
        {
            ask(request, slot)?;
            if !missing.contains(&true) {
                break;
            }
        }
    }
    Ok(())
}
