//! A check that holds in any order of the calls: the number of units admitted in any window. Units of an unanswered
//! call only add to them. It needs no model and no search.

use std::collections::BTreeMap;

use tidegate::{Algorithm, Limit, Policy};

use super::event::{Happening, History};
use super::possible_state::named;
use crate::call_records::{Call, Operation};

/// The most units that may be admitted in a time of `length` microseconds, both ends included.
fn most(limit: &Limit, length: u64) -> Option<u128> {
    let (count, period) = (u128::from(limit.count()), limit.period().micros());
    match limit.algorithm() {
        Algorithm::SlidingLog | Algorithm::SlidingWindow | Algorithm::Concurrency => (length < period).then_some(count),
        Algorithm::FixedWindow | Algorithm::CalendarWindow => (length < period).then_some(2 * count),
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            Some(u128::from(limit.capacity()) + (u128::from(length) * count).div_ceil(u128::from(period)))
        }
        // The sliding counter only estimates.
        _ => None,
    }
}

/// Returns a message for each window that admitted too much.
pub(super) fn check(policies: &[Policy], history: &History<'_>) -> Vec<String> {
    let gives_back = |call: &Call| matches!(call.operation, Operation::Refund | Operation::Clear | Operation::Override);
    let uncertain = history.uncertain.iter().filter_map(|event| match event.what {
        Happening::Call(call, _) => Some(call),
        _ => None,
    });
    if history.has_loss() || history.decided.iter().map(|one| one.call).chain(uncertain).any(gives_back) {
        return Vec::new();
    }
    let mut admitted: BTreeMap<(&str, &str), Vec<(u64, u64)>> = BTreeMap::new();
    for decided in &history.decided {
        let charges = matches!(decided.call.operation, Operation::Check | Operation::CheckAll);
        if charges && decided.values.allowed {
            for (policy, key, cost) in &decided.call.entries {
                admitted.entry((policy, key)).or_default().push((decided.at, *cost));
            }
        }
    }
    let mut found = Vec::new();
    for ((name, key), charges) in admitted {
        for limit in named(policies, name).limits() {
            for (first, (begin, _)) in charges.iter().enumerate() {
                let mut units = 0;
                for (at, cost) in &charges[first..] {
                    units += u128::from(*cost);
                    if most(limit, at - begin).is_some_and(|most| units > most) {
                        found.push(format!("{name} admitted {units} units to {key} from {begin} to {at}"));
                    }
                }
            }
        }
    }
    found.truncate(1);
    found
}
