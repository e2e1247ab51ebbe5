//! The worst burst: the most units that any sequence of calls gets in a window.
//!
//! Each limit has a bound that follows from its rule, and the lowest one bounds the policy. A search then runs greedy
//! callers that begin before the edge of a window, where the most passes, and finds the units that all limits admit.

use tidegate::host::{AlgorithmKind, calendar_edges, kind, most_in};
use tidegate::{Algorithm, Limit, Policy};

use super::greedy::{GreedyCaller, START, over_time};
use crate::Result;

/// Steps of all callers of a search, which take a few milliseconds.
const MAX_STEPS: usize = 6_000;

/// The most units in any window of a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Burst {
    /// In microseconds. The shortest window is one moment.
    pub(super) window: u64,
    /// The most units that a search found, nearly always the bound. `None` if it had too few steps.
    pub(super) found: Option<u64>,
    /// The units that no sequence of calls can exceed.
    pub(super) bound: u64,
    /// The index of the limit with the lowest bound.
    pub(super) limit: usize,
}

/// The worst burst at one moment, and in a window as long as the period of each limit.
pub(super) fn worst(policy: &Policy) -> Result<Vec<Burst>> {
    let limits = over_time(policy);
    let mut windows: Vec<u64> = limits.iter().map(|(_, limit)| limit.period().micros()).chain([1]).collect();
    windows.sort_unstable();
    windows.dedup();
    let mut search = Search::new(policy, MAX_STEPS / windows.len())?;
    let mut bursts = Vec::new();
    for window in windows {
        // Units in progress count at one moment. Over time they are given back.
        let bounding = if window <= 1 { policy.limits().iter().enumerate().collect() } else { limits.clone() };
        let bounds = bounding.iter().map(|(index, limit)| (most_in(limit, window), *index));
        let Some((bound, limit)) = bounds.min() else { break };
        // A single limit reaches its bound. Tests compare it with a search through every sequence of calls.
        let found = match &mut search {
            Some(search) if limits.len() > 1 && window > 1 => search.most(window, bound)?,
            _ => Some(bound),
        };
        bursts.push(Burst { window, found, bound, limit });
    }
    Ok(bursts)
}

/// Greedy callers of one policy.
struct Search<'a> {
    policy: &'a Policy,
    caller: GreedyCaller,
    runs: usize,
    /// The steps for each window.
    max_steps: usize,
}

/// The calls before a greedy caller: single units that open windows, and the edge where these windows end.
struct Prelude {
    openings: Vec<u64>,
    edge: u64,
}

impl<'a> Search<'a> {
    fn new(policy: &'a Policy, max_steps: usize) -> Result<Option<Self>> {
        Ok(GreedyCaller::new(policy)?.map(|caller| Self { policy, caller, runs: 0, max_steps }))
    }

    /// The most units that a caller gets in a window. The search ends early when it reaches the bound.
    fn most(&mut self, window: u64, bound: u64) -> Result<Option<u64>> {
        let mut steps = self.max_steps;
        let mut most = self.units(&Prelude { openings: Vec::new(), edge: 0 }, 0, window, &mut steps)?;
        for prelude in self.preludes() {
            for before in self.leads(window) {
                if most >= bound || steps == 0 {
                    break;
                }
                if before <= prelude.edge {
                    most = most.max(self.units(&prelude, before, window, &mut steps)?);
                }
            }
        }
        Ok((most >= bound || steps > 0).then_some(most))
    }

    /// The units of a caller that begins so long before the edge.
    fn units(&mut self, prelude: &Prelude, before: u64, window: u64, steps: &mut usize) -> Result<u64> {
        self.runs += 1;
        let key = format!("run {}", self.runs);
        let begin = prelude.edge - before;
        for opening in prelude.openings.iter().filter(|opening| **opening < begin) {
            self.caller.take_one(&key, *opening)?;
        }
        let run = self.caller.run(&key, begin, window, *steps)?;
        *steps -= run.steps.min(*steps);
        Ok(run.admissions.iter().map(|admission| admission.units).sum())
    }

    /// An edge for each limit with windows: alone, and with the windows of all shorter limits ending there, too.
    fn preludes(&self) -> Vec<Prelude> {
        let limits: Vec<&Limit> = over_time(self.policy).into_iter().map(|(_, limit)| limit).collect();
        let mut preludes = Vec::new();
        for limit in limits.iter().filter(|limit| kind(limit.algorithm()) == AlgorithmKind::Windows) {
            let period = limit.period().micros();
            let edge = edge_of(limit);
            let opens =
                |other: &&&Limit| other.algorithm() == Algorithm::FixedWindow && other.period().micros() <= period;
            let mut openings: Vec<u64> =
                limits.iter().filter(opens).map(|other| edge - other.period().micros()).collect();
            openings.sort_unstable();
            openings.dedup();
            if limit.algorithm() == Algorithm::FixedWindow && openings.len() > 1 {
                preludes.push(Prelude { openings: vec![edge - period], edge });
            }
            preludes.push(Prelude { openings, edge });
        }
        preludes
    }

    /// How long before an edge a caller may begin: at the last moment, and early enough for slower limits to admit the
    /// rest of the window.
    fn leads(&self, window: u64) -> Vec<u64> {
        let mut leads = vec![1];
        for (_, limit) in over_time(self.policy) {
            let period = limit.period().micros();
            let returns = period + period / u64::from(limit.precision());
            leads.extend((1..=8).flat_map(|times| [times * period + 1, times * returns + 1]));
        }
        leads.extend((1..12).map(|part| window / 12 * part));
        leads.sort_unstable();
        leads.dedup();
        leads.retain(|lead| *lead < window);
        leads
    }
}

/// An edge of a limit's windows that is later than one of its periods, in microseconds since [`START`].
fn edge_of(limit: &Limit) -> u64 {
    let period = limit.period().micros();
    if limit.algorithm() == Algorithm::CalendarWindow {
        // The shortest window begins where the most windows are touched.
        let edges = calendar_edges(limit);
        let shortest = edges[1..].windows(2).min_by_key(|pair| pair[1] - pair[0]);
        return shortest.map_or(period, |pair| pair[0] - START);
    }
    // Aligned windows begin at multiples of the period since 1970.
    (START + 2 * period).next_multiple_of(period) - START
}

#[cfg(test)]
mod tests;
