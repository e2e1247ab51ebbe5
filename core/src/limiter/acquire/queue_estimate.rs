//! The Decision of a caller that gives up in a queue: an honest wait, though the callers ahead did not ask the store.

use std::sync::Arc;

use crate::algorithm::{MAX_SAFE_INTEGER, Rule, View};
use crate::decision::{Decision, LimiterId};
use crate::plan::Plan;
use crate::store::request::{Answer, Details, Operation};

/// What a caller wants, and what the callers ahead of it want.
pub(super) struct QueueEstimate {
    cost: u64,
    /// The units of all callers ahead, and its own.
    wanted: u64,
    /// What it asks of each limit, where that is not the cost of all: then it does not know what the callers ahead take.
    details: Option<Arc<Details>>,
}

impl QueueEstimate {
    pub(super) fn new(operation: &Operation, ahead: u64) -> Self {
        let cost = operation.cost();
        Self { cost, wanted: cost.saturating_add(ahead), details: operation.details().cloned() }
    }

    /// What to ask the store: as many of the units wanted as can ever be admitted at once.
    pub(super) fn operation(&self, plan: &Plan) -> Operation {
        if self.details.as_ref().is_some_and(|details| !details.amounts.is_empty()) {
            return Operation::Peek { cost: self.cost, details: self.details.clone() };
        }
        let capacity = plan.rules.iter().map(Rule::capacity).min().unwrap_or(0);
        // A cost that never fits is not admitted after the callers ahead either.
        let cost = if self.cost > capacity { self.cost } else { self.wanted.min(capacity) };
        Operation::peek(cost)
    }

    /// The denial of a caller whose time is over. The wait for each limit is computed as if all units wanted were charged
    /// as soon as they fit; for windows that cannot take all at once this is an estimate.
    pub(super) fn denied(&self, limiter: LimiterId, plan: Arc<Plan>, key: &str, mut answer: Answer) -> Decision {
        if let Operation::Peek { cost: asked, details: None } = self.operation(&plan) {
            for (index, view) in answer.views.iter_mut().enumerate() {
                view.admits_at = view.admits_at.map(|at| self.admits_at(&plan, index, view, (asked, at)));
            }
        }
        answer.applied = false;
        // Where there is room for all, the callers ahead are about to take theirs.
        answer.yield_to_others();
        Decision::new(limiter, plan, key, self.cost, answer)
    }

    fn admits_at(&self, plan: &Plan, index: usize, view: &View, (asked, at): (u64, u64)) -> u64 {
        if self.wanted <= view.remaining() || self.wanted <= asked {
            return at;
        }
        let limit = &plan.policy.limits()[index];
        let (count, period) = (u128::from(limit.count().max(1)), u128::from(limit.period().micros()));
        let later = if plan.rules[index].meter().is_some() {
            // What does not fit drains at a steady rate.
            let rest = u128::from(self.wanted - asked.max(view.remaining().min(self.wanted)));
            u128::from(at) + (rest * period).div_ceil(count)
        } else {
            // As if each new window were full again at once.
            let rest = u128::from(self.wanted - view.remaining() - 1);
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

    /// The wait of a caller that wants one unit behind so many, and which limits refused it. Of each limit it is given
    /// what is left, and in how many seconds it admits what is asked.
    fn estimate(notation: &str, ahead: u64, views: &[(i64, u64)]) -> (Option<Duration>, Vec<bool>) {
        let plan = plan_of(&Policy::parse(notation).expect("a policy"));
        let views = views.iter().map(|(left, seconds)| {
            let at = NOW + seconds * SECOND;
            View { left: *left, admits_at: Some(at), resets_at: at, ..View::default() }
        });
        let answer = Answer { applied: true, now: NOW, views: views.collect::<Views>(), ..Answer::default() };
        let denied = QueueEstimate::new(&Operation::check(1), ahead).denied(LimiterId::ELSEWHERE, plan, "k", answer);
        assert!(!denied.allowed());
        (denied.retry_after(), denied.limits().map(|limit| limit.exceeded).collect())
    }

    #[test]
    fn a_wait_is_never_none_and_counts_those_ahead() {
        // There is room for all: the callers ahead take it at any moment.
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
