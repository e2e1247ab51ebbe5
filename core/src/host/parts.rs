//! A Decision taken apart, for hosts that send Decisions to other processes.

use crate::algorithm::View;
use crate::decision::{Decision, LimiterId};
use crate::error::{Error, Result};
use crate::plan::plan_cache::plan_of;
use crate::plan::{Amount, Amounts};
use crate::policy::Policy;
use crate::store::request::{Answer, RareAnswer, Source};

/// The values of a Decision. Only the same version of the crate knows the meaning of the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The policy that was asked.
    pub policy: Policy,
    /// The key.
    pub key: String,
    /// The units that were asked for.
    pub cost: u64,
    /// The units that it consumed.
    pub granted: u64,
    /// The answer.
    pub numbers: Vec<u64>,
    /// One for each entry of a `check_all`.
    pub decisions: Vec<Parts>,
}

const SOURCES: [Source; 4] = [Source::Store, Source::DenyCache, Source::Lease, Source::Fallback];
/// The count of numbers for each limit. They follow those for the whole answer.
const NUMBERS_PER_LIMIT: usize = 6;
/// Stands for a missing number.
const ABSENT: u64 = u64::MAX;

impl Parts {
    /// Takes a Decision apart.
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        let answer = decision.answer();
        let source = SOURCES.iter().position(|source| *source == answer.source).unwrap_or_default();
        let mut numbers = vec![
            u64::from(answer.applied) | u64::from(answer.unavailable) << 1,
            source as u64,
            answer.now,
            answer.blocked_until,
            answer.refused.map_or(ABSENT, u64::from),
        ];
        for (index, view) in answer.views.iter().enumerate() {
            let View { left, admits_at, resets_at, delay, more_at } = *view;
            let units = answer.amounts().get(index).map_or(ABSENT, |amount| amount.units);
            numbers.extend([left as u64, admits_at.unwrap_or(ABSENT), resets_at, delay, more_at, units]);
        }
        Self {
            policy: decision.plan().policy.clone(),
            key: decision.key().to_owned(),
            cost: decision.cost(),
            granted: decision.granted(),
            numbers,
            decisions: decision.decisions().iter().map(Self::of).collect(),
        }
    }

    /// Puts the Decision together again. It reads the same, but cannot be settled. Its denial is not repeated any more,
    /// because the time that has passed is unknown.
    ///
    /// # Errors
    /// `config_invalid` for numbers that are no answer to the policy.
    pub fn into_decision(self) -> Result<Decision> {
        let wrong = || Error::config(format!("{:?} are not the numbers of a Decision", self.numbers));
        let (&[flags, source, now, blocked_until, refused], views) =
            self.numbers.split_first_chunk().ok_or_else(wrong)?;
        let plan = plan_of(&self.policy);
        if flags > 3 || views.len() % NUMBERS_PER_LIMIT != 0 || views.len() / NUMBERS_PER_LIMIT > plan.rules.len() {
            return Err(wrong());
        }
        let some = |number: u64| (number != ABSENT).then_some(number);
        let amounts: Amounts =
            views.chunks_exact(NUMBERS_PER_LIMIT).filter_map(|view| Some(Amount::of(some(view[5])?))).collect();
        let rare = RareAnswer { amounts, ..RareAnswer::default() };
        let answer = Answer {
            rare: (!rare.amounts.is_empty()).then(|| Box::new(rare)),
            applied: flags & 1 == 1,
            unavailable: flags >> 1 & 1 == 1,
            source: usize::try_from(source).ok().and_then(|at| SOURCES.get(at)).copied().ok_or_else(wrong)?,
            now,
            blocked_until,
            granted: self.granted,
            refused: some(refused).map(u16::try_from).transpose().map_err(|_| wrong())?,
            views: views
                .chunks_exact(NUMBERS_PER_LIMIT)
                .map(|view| View {
                    left: view[0] as i64,
                    admits_at: some(view[1]),
                    resets_at: view[2],
                    delay: view[3],
                    more_at: view[4],
                })
                .collect(),
            ..Answer::default()
        };
        let decisions = self.decisions.into_iter().map(Self::into_decision).collect::<Result<Vec<_>>>()?;
        Ok(Decision::new(LimiterId::ELSEWHERE, plan, self.key, self.cost, answer).with_decisions(decisions))
    }
}
