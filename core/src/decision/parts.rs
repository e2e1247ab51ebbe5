//! A Decision taken apart, for hosts that send theirs to other processes.

use super::Decision;
use crate::algorithm::View;
use crate::error::{Error, Result};
use crate::plan_cache::{PlanHandle, plan_of};
use crate::policy::Policy;
use crate::store::{Answer, Source};

/// What a Decision is made of, as plain values: [`Decision::parts`] takes it apart, [`Decision::from_parts`] puts it
/// together again. What the numbers mean is for the same version to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The policy that was asked.
    pub policy: Policy,
    /// The key.
    pub key: String,
    /// The units that were asked for.
    pub cost: u64,
    /// The units it consumed.
    pub charged: u64,
    /// What was answered.
    pub numbers: Vec<u64>,
    /// Of `check_all`: one for each entry.
    pub decisions: Vec<Parts>,
}

const SOURCES: [Source; 4] = [Source::Store, Source::DenyCache, Source::Lease, Source::Fallback];
/// How many numbers there are about each limit, after those about the whole answer.
const EACH: usize = 4;
/// Stands for what there is none of.
const NONE: u64 = u64::MAX;

impl Decision {
    /// Takes it apart.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let answer = &self.answer;
        let source = SOURCES.iter().position(|source| *source == answer.source).unwrap_or_default();
        let mut numbers = vec![
            u64::from(answer.applied) | u64::from(answer.unavailable) << 1,
            source as u64,
            answer.now,
            answer.blocked_until,
            answer.refused.map_or(NONE, u64::from),
        ];
        for view in &answer.views {
            numbers.extend([view.remaining, view.admits_at.unwrap_or(NONE), view.resets_at, view.delay]);
        }
        Parts {
            policy: self.plan.policy.clone(),
            key: self.key.to_string(),
            cost: self.cost,
            charged: self.charged,
            numbers,
            decisions: self.decisions().iter().map(Self::parts).collect(),
        }
    }

    /// Puts it together again: it says the same, and can be settled. Nobody may repeat its denial any more, since it is
    /// not known how long it was on its way.
    ///
    /// # Errors
    /// `config_invalid` for numbers that are no answer to the policy.
    pub fn from_parts(parts: Parts) -> Result<Self> {
        let wrong = || Error::config(format!("{:?} are not the numbers of a Decision", parts.numbers));
        let (&[said, source, now, blocked_until, refused], views) =
            parts.numbers.split_first_chunk().ok_or_else(wrong)?;
        let plan = plan_of(&parts.policy);
        if said > 3 || views.len() % EACH != 0 || views.len() / EACH > plan.rules.len() {
            return Err(wrong());
        }
        let some = |number: u64| (number != NONE).then_some(number);
        let answer = Answer {
            applied: said & 1 == 1,
            unavailable: said >> 1 == 1,
            source: usize::try_from(source).ok().and_then(|at| SOURCES.get(at)).copied().ok_or_else(wrong)?,
            now,
            blocked_until,
            refused: some(refused).map(u16::try_from).transpose().map_err(|_| wrong())?,
            views: views
                .chunks_exact(EACH)
                .map(|view| View { remaining: view[0], admits_at: some(view[1]), resets_at: view[2], delay: view[3] })
                .collect(),
            ..Answer::default()
        };
        let decisions = parts.decisions.into_iter().map(Self::from_parts).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            plan: PlanHandle::new(plan),
            key: parts.key.into(),
            cost: parts.cost,
            answer,
            charged: parts.charged,
            decisions: (!decisions.is_empty()).then(|| decisions.into()),
        })
    }
}
