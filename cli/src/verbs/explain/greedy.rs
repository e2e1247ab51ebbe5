//! A caller that takes all it can as soon as it can. It runs on the real limiter, in memory and with its own clock.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, Cost, Limit, Limiter, ManualClock, Options, Policy, host};

use crate::Result;

/// Monday, 1 January 2024, 00:00 UTC. Every calendar window begins here, and every window that divides a day.
pub(super) const START: u64 = 1_704_067_200_000_000;

/// Units that were admitted at a moment, in microseconds since the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) at: u64,
    pub(super) units: u64,
}

/// A time in which one limit held the caller back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) limit: usize,
}

/// The admissions and the waits of a caller.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) admissions: Vec<Admission>,
    pub(super) waits: Vec<Wait>,
    /// The time that it reached, which is not the end if it ran out of steps.
    pub(super) until: u64,
    pub(super) steps: usize,
}

/// A caller that asks whenever a unit may be free.
pub(super) struct GreedyCaller {
    policy: Policy,
    /// The indexes that the limits of `policy` have in the explained policy.
    indexes: Vec<usize>,
    clock: Arc<ManualClock>,
    limiter: Limiter,
}

/// The limits that count units over time. `concurrency` does not, because its units are given back at will.
pub(super) fn over_time(policy: &Policy) -> Vec<(usize, &Limit)> {
    let counts = |(_, limit): &(usize, &Limit)| limit.algorithm() != Algorithm::Concurrency;
    policy.limits().iter().enumerate().filter(counts).collect()
}

impl GreedyCaller {
    /// `None` for a policy that counts nothing over time.
    pub(super) fn new(policy: &Policy) -> Result<Option<Self>> {
        let (indexes, limits): (Vec<usize>, Vec<&Limit>) = over_time(policy).into_iter().unzip();
        if limits.is_empty() {
            return Ok(None);
        }
        let policy = Policy::new(limits.into_iter().cloned().collect(), Options::default())?;
        let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
        let limiter = host::unpublished(Limiter::builder()).clock(Arc::clone(&clock)).build()?;
        Ok(Some(Self { policy, indexes, clock, limiter }))
    }

    /// Takes one unit at a moment since [`START`]. True if it was admitted.
    pub(super) fn take_one(&self, key: &str, at: u64) -> Result<bool> {
        self.clock.set(Duration::from_micros(START + at));
        Ok(self.limiter.check_with(&self.policy, key, &Cost::one_of_each(&self.policy).into())?.allowed())
    }

    /// Runs from a moment since [`START`], for `time` microseconds and in at most `max_steps` steps.
    pub(super) fn run(&self, key: &str, from: u64, time: u64, max_steps: usize) -> Result<Run> {
        let mut run = Run::default();
        let mut now = 0;
        while now < time {
            run.until = now;
            if run.steps >= max_steps {
                return Ok(run);
            }
            run.steps += 1;
            self.clock.set(Duration::from_micros(START + from + now));
            let room = self.limiter.peek(&self.policy, key, Cost::one_of_each(&self.policy))?;
            let units = room.limits().map(|limit| limit.remaining).min().unwrap_or(0);
            if units > 0
                && self.limiter.check_with(&self.policy, key, &Cost::of_each(&self.policy, units).into())?.allowed()
            {
                run.admissions.push(Admission { at: now, units });
            }
            let next = self.limiter.peek(&self.policy, key, Cost::one_of_each(&self.policy))?;
            let Some(wait) = next.next_after() else { break };
            let wait = (wait.as_micros() as u64).max(self.least_step(time, max_steps));
            let limit = self.indexes[next.binding_index()];
            note(&mut run.waits, Wait { from: now, until: (now + wait).min(time), limit });
            now += wait;
        }
        run.until = time;
        Ok(run)
    }

    /// The shortest pause between two moments. No bucket becomes full in this time, so that no unit is lost.
    fn least_step(&self, time: u64, max_steps: usize) -> u64 {
        let fills = |limit: &Limit| {
            let micros = u128::from(limit.period().micros()) * u128::from(limit.capacity());
            u64::try_from(micros / u128::from(limit.count().max(1)) / 2).unwrap_or(u64::MAX)
        };
        let buckets = self.policy.limits().iter().filter(|limit| limit.algorithm().has_burst());
        buckets.map(fills).min().unwrap_or(1).min(time / max_steps.max(1) as u64).max(1)
    }
}

/// Adds a wait, or makes the last one longer if the same limit still binds.
fn note(waits: &mut Vec<Wait>, wait: Wait) {
    match waits.last_mut() {
        Some(last) if last.limit == wait.limit => last.until = wait.until,
        _ => waits.push(wait),
    }
}
