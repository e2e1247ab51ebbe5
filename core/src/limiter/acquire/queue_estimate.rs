//! The Decision of a caller that gives up in a queue. Its wait is honest, though the callers ahead did not ask the store.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::{Algorithm, MAX_SAFE_INTEGER, View};
use crate::decision::{Decision, LimiterId};
use crate::plan::{Amount, Amounts, Plan};
use crate::store::request::{Answer, Details, Operation};

/// The units that callers want, of each limit or the same number of all.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedUnits {
    cost: u64,
    of_limits: SmallVec<[u64; 3]>,
}

impl WantedUnits {
    pub(super) fn of(operation: &Operation) -> Self {
        let of_limits = operation.amounts().unwrap_or_default().iter().map(|amount| amount.units).collect();
        Self { cost: operation.cost(), of_limits }
    }

    fn of_limit(&self, index: usize) -> u64 {
        self.of_limits.get(index).copied().unwrap_or(self.cost)
    }

    /// The sum of these and those of others.
    pub(super) fn and(self, others: Self) -> Self {
        let limits = 0..self.of_limits.len().max(others.of_limits.len());
        let of_limits = limits.map(|index| self.of_limit(index).saturating_add(others.of_limit(index)));
        Self { of_limits: of_limits.collect(), cost: self.cost.saturating_add(others.cost) }
    }
}

/// The units that a caller wants, together with those of the callers ahead of it.
pub(super) struct QueueEstimate {
    cost: u64,
    /// The units of all callers ahead, and its own.
    wanted: WantedUnits,
    /// Its units of each limit, if they are not the cost for all.
    details: Option<Arc<Details>>,
}

impl QueueEstimate {
    pub(super) fn new(operation: &Operation, ahead: WantedUnits) -> Self {
        let own = WantedUnits::of(operation);
        Self { cost: operation.cost(), wanted: ahead.and(own), details: operation.details().cloned() }
    }

    /// The question to the store: the wanted units of each limit, without whole multiples of its count, which take a
    /// period each. A cost that never fits is not admitted after the callers ahead either.
    pub(super) fn operation(&self, plan: &Plan) -> Operation {
        let own = self.details.as_ref().map_or(&[][..], |details| &details.amounts[..]);
        let asked = plan.rules.iter().enumerate().map(|(index, rule)| {
            let own = own.get(index).copied().unwrap_or(Amount::of(self.cost));
            let (wanted, count) = (self.wanted.of_limit(index), rule.capacity().max(1));
            let rest = wanted.checked_sub(1).map_or(0, |ahead| ahead % count + 1);
            let most = rule.capacity().saturating_sub(own.reserve);
            Amount { units: if own.units > most { own.units } else { rest.min(most) }, ..own }
        });
        let amounts: Amounts = asked.collect();
        match amounts.first() {
            Some(first) if own.is_empty() && amounts.iter().all(|amount| amount == first) => {
                Operation::peek(first.units)
            }
            _ => Operation::Peek { cost: self.cost, details: Details { amounts, meta: None, line: None }.shared() },
        }
    }

    /// The least wait of the caller, by the answer to that question.
    pub(super) fn least_wait(&self, plan: &Plan, answer: &Answer) -> u64 {
        let asked = self.operation(plan);
        let limits = plan.rules.iter().zip(&answer.views).enumerate();
        let opens = limits.filter(|(_, (rule, _))| !rule.holds()).map(|(index, (_, view))| match view.admits_at {
            // The limits of a service may change with its next response.
            Some(_) if plan.policy.asks() => answer.now,
            Some(at) => self.opens_at(plan, index, view, (asked.amount(index).units, at, answer.now)),
            None => MAX_SAFE_INTEGER,
        });
        opens.fold(answer.blocked_until, u64::max).saturating_sub(answer.now)
    }

    /// The moment before which a limit does not admit the caller.
    fn opens_at(&self, plan: &Plan, index: usize, view: &View, (asked, at, now): (u64, u64, u64)) -> u64 {
        let (wanted, limit) = (self.wanted.of_limit(index), &plan.policy.limits()[index]);
        let period = limit.period().micros();
        match limit.algorithm() {
            // Months differ in length.
            Algorithm::CalendarWindow if wanted > view.remaining() => at.max(view.resets_at),
            Algorithm::CalendarWindow => at,
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                self.admits_at(plan, index, view, (asked, at))
            }
            _ if plan.rules[index].meter().is_some() => self.admits_at(plan, index, view, (asked, at)),
            // It admits about a count more at the edge of its windows.
            _ => at.max(now.saturating_add((wanted / limit.count().max(1)).saturating_sub(2).saturating_mul(period))),
        }
    }

    /// The denial of a caller when its time is over. The wait for each limit is computed as if all wanted units were
    /// charged as soon as they fit. For windows that cannot take all at once, this is an estimate.
    pub(super) fn denied(&self, limiter: LimiterId, plan: Arc<Plan>, key: &str, mut answer: Answer) -> Decision {
        let asked = self.operation(&plan);
        for (index, view) in answer.views.iter_mut().enumerate() {
            let asked = asked.amount(index).units;
            view.admits_at = view.admits_at.map(|at| self.admits_at(&plan, index, view, (asked, at)));
        }
        answer.applied = false;
        // If there is room for all, the callers ahead are about to take their units.
        answer.yield_to_others();
        Decision::new(limiter, plan, key, self.cost, answer)
    }

    fn admits_at(&self, plan: &Plan, index: usize, view: &View, (asked, at): (u64, u64)) -> u64 {
        let wanted = self.wanted.of_limit(index);
        if wanted <= view.remaining() || wanted <= asked {
            return at;
        }
        let limit = &plan.policy.limits()[index];
        let (count, period) = (u128::from(limit.count().max(1)), u128::from(limit.period().micros()));
        let later = if plan.rules[index].meter().is_some() {
            // The units that do not fit drain at a steady rate.
            let rest = u128::from(wanted - asked.max(view.remaining().min(wanted)));
            u128::from(at) + (rest * period).div_ceil(count)
        } else if matches!(limit.algorithm(), Algorithm::SlidingWindow | Algorithm::SlidingLog) {
            // A unit is admitted a period after the one that is a whole count ahead of it.
            u128::from(at) + u128::from(wanted - 1) / count * period
        } else {
            // As if each new window were full again at once.
            let rest = u128::from(wanted - view.remaining() - 1);
            u128::from(view.resets_at) + rest / count * period
        };
        later.min(u128::from(MAX_SAFE_INTEGER)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::store::request::Views;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    /// The wait of a caller that wants one unit behind `ahead` units, and which limits refused it. `views` gives the
    /// units left of each limit, and in how many seconds it admits the question.
    fn estimate(notation: &str, ahead: u64, views: &[(i64, u64)]) -> (Option<Duration>, Vec<bool>) {
        let plan = plan_of(&Policy::parse(notation).expect("a policy"));
        let views = views.iter().map(|(left, seconds)| {
            let at = NOW + seconds * SECOND;
            View { left: *left, admits_at: Some(at), resets_at: at, ..View::default() }
        });
        let answer = Answer { applied: true, now: NOW, views: views.collect::<Views>(), ..Answer::default() };
        let ahead = WantedUnits { cost: ahead, ..WantedUnits::default() };
        let denied = QueueEstimate::new(&Operation::check(1), ahead).denied(LimiterId::ELSEWHERE, plan, "k", answer);
        assert!(!denied.allowed());
        (denied.retry_after(), denied.limits().map(|limit| limit.exceeded).collect())
    }

    #[test]
    fn a_wait_is_never_none_and_counts_those_ahead() {
        // There is room for all, but the callers ahead take it at any moment.
        assert_eq!(estimate("fixed-window 5/10s", 2, &[(5, 0)]), (Some(Duration::from_micros(1)), vec![false]));
        // A bucket admits one unit each second.
        assert_eq!(estimate("gcra 1/s burst 5", 9, &[(2, 3)]), (Some(Duration::from_secs(8)), vec![true]));
        // After this window two more are needed for eleven units.
        assert_eq!(estimate("fixed-window 5/10s", 10, &[(0, 4)]), (Some(Duration::from_secs(24)), vec![true]));
        // A limit with room for all adds no wait, however little another limit admits at once.
        assert_eq!(
            estimate("gcra 1/s; 1000/day", 9, &[(0, 1), (500, 0)]),
            (Some(Duration::from_secs(10)), vec![true, false])
        );
    }
}
