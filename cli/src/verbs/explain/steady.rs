//! The smoothest steady use: one unit at a time, at the fastest even pace that is never denied, whenever it begins.

use tidegate::Policy;
use tidegate::host::steady_pause;

use super::greedy::over_time;

/// One unit every so many microseconds, and the limit that allows no shorter pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steady {
    pub(super) interval: u64,
    pub(super) limit: usize,
}

/// The steady use of a policy. `None` if nothing is admitted, or nothing counts over time.
pub(super) fn smoothest(policy: &Policy) -> Option<Steady> {
    let limits = over_time(policy);
    let intervals: Option<Vec<Steady>> = limits
        .iter()
        .map(|(index, limit)| steady_pause(limit).map(|interval| Steady { interval, limit: *index }))
        .collect();
    intervals?.into_iter().max_by_key(|steady| steady.interval)
}

#[cfg(test)]
mod tests;
