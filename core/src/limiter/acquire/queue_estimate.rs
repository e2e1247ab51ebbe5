//! When it is the turn of somebody who stands in a line and goes without: a truthful wait, though nobody asked the store
//! for those ahead.

use std::sync::Arc;

use super::operations::decided;
use crate::algorithm::View;
use crate::decision::Decision;
use crate::plan::Plan;
use crate::store::request::{Answer, Operation};

/// What somebody wants, behind those who stand ahead.
pub(super) struct Turn {
    cost: u64,
    /// The units of all who stand ahead, and its own.
    wanted: u64,
}

impl Turn {
    pub(super) const fn new(cost: u64, ahead: u64) -> Self {
        Self { cost, wanted: cost.saturating_add(ahead) }
    }

    /// The units the store is asked about: as many of those wanted as can ever be admitted at once.
    pub(super) fn asks(&self, plan: &Plan) -> Operation {
        let most = plan.rules.iter().map(crate::algorithm::Rule::capacity).min().unwrap_or(0);
        // A cost that can never fit waits for nobody: it is never admitted.
        let cost = if self.cost > most { self.cost } else { self.wanted.min(most) };
        Operation::Peek { cost }
    }

    /// The denial of somebody whose time is over. Each limit is waited for as if all that is wanted were charged as soon
    /// as it fits; for windows that cannot take all at once this is an estimate.
    pub(super) fn denied(&self, plan: Arc<Plan>, key: &str, mut answer: Answer) -> Decision {
        let now = answer.now;
        if let Operation::Peek { cost: asked } = self.asks(&plan) {
            for (index, view) in answer.views.iter_mut().enumerate() {
                view.admits_at = view.admits_at.map(|at| self.admits_at(&plan, index, view, (asked, at)));
            }
        }
        answer.applied = false;
        let waits = |view: &View| view.admits_at.is_none_or(|at| at > now);
        if answer.blocked_until <= now && !answer.views.iter().any(waits) {
            // There is room for all of them, and those ahead are about to take theirs: the line refused, no limit did.
            answer.refused = Some(0);
            answer.views.iter_mut().for_each(|view| view.admits_at = Some(now + 1));
        }
        decided(plan, key, &Operation::Peek { cost: self.cost }, answer)
    }

    fn admits_at(&self, plan: &Plan, index: usize, view: &View, (asked, at): (u64, u64)) -> u64 {
        if self.wanted <= view.remaining || self.wanted <= asked {
            return at;
        }
        let limit = &plan.policy.limits()[index];
        let (count, period) = (u128::from(limit.count().max(1)), u128::from(limit.period().micros()));
        let later = if plan.rules[index].meter().is_some() {
            // What does not fit drains at a steady rate.
            let rest = u128::from(self.wanted - asked.max(view.remaining.min(self.wanted)));
            u128::from(at) + (rest * period).div_ceil(count)
        } else {
            // A window that is full again each time it begins anew.
            let rest = u128::from(self.wanted - view.remaining - 1);
            u128::from(view.resets_at) + rest / count * period
        };
        later.min(u128::from(crate::algorithm::MAX_SAFE_INTEGER)) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::store::request::Views;

    const NOW: u64 = 1_800_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    /// What somebody is told who wants one unit behind so many, where each limit has so much left and admits what is
    /// asked in so many seconds.
    fn told(notation: &str, ahead: u64, views: &[(u64, u64)]) -> (Option<Duration>, Vec<bool>) {
        let plan = plan_of(&Policy::parse(notation).expect("a policy"));
        let views = views.iter().map(|(remaining, seconds)| {
            let at = NOW + seconds * SECOND;
            View { remaining: *remaining, admits_at: Some(at), resets_at: at, delay: 0 }
        });
        let answer = Answer { applied: true, now: NOW, views: views.collect::<Views>(), ..Answer::default() };
        let denied = Turn::new(1, ahead).denied(plan, "k", answer);
        assert!(!denied.allowed());
        (denied.retry_after(), denied.limits().map(|limit| limit.exceeded).collect())
    }

    #[test]
    fn a_wait_is_never_none_and_counts_those_ahead() {
        // There is room for all: who stands ahead takes it any moment.
        assert_eq!(told("fixed-window 5/10s", 2, &[(5, 0)]), (Some(Duration::from_micros(1)), vec![false]));
        // A bucket lets one go each second.
        assert_eq!(told("gcra 1/s burst 5", 9, &[(2, 3)]), (Some(Duration::from_secs(8)), vec![true]));
        // After the window at hand two more are needed for eleven units.
        assert_eq!(told("fixed-window 5/10s", 10, &[(0, 4)]), (Some(Duration::from_secs(24)), vec![true]));
        // A limit with room for all is not waited for, however little another one admits at once.
        assert_eq!(
            told("gcra 1/s; 1000/day", 9, &[(0, 1), (500, 0)]),
            (Some(Duration::from_secs(10)), vec![true, false])
        );
    }
}
