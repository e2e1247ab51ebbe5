//! One denial that is repeated: what it says later on, and for how long it holds.
//!
//! Two moments are kept apart. It is repeated up to its end counted from when the call was *sent*: the store decided
//! later than that, so it is never repeated too long. What it says is counted from when the answer was *there*, as the
//! caller of that answer counts it: so the moment it names does not move.

use std::sync::Arc;

use compact_str::CompactString;

use super::table::Item;
use crate::algorithm::{Rule, State, View};
use crate::plan::Plan;
use crate::store::request::{Answer, Entry, Source, States};

/// In the last so-many-th of its time one check goes through and renews a denial, while all others are still answered:
/// else everybody who comes between its end and the next answer would ask.
const RENEWAL: u64 = 10;

/// See the module.
pub(super) struct Denial {
    plan: Arc<Plan>,
    key: CompactString,
    hash: u64,
    pub(super) cost: u64,
    answer: Answer,
    /// What the answer was read from.
    states: States,
    /// When the answer was there.
    pub(super) heard: u64,
    /// From when on one check may renew it.
    renews: u64,
    pub(super) until: u64,
}

/// When a denial was asked for and answered, and the longest it may be repeated.
pub(super) struct Times {
    pub(super) sent: u64,
    pub(super) heard: u64,
    pub(super) longest: u64,
}

impl Item for Denial {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn until(&self) -> u64 {
        self.until
    }
}

impl Denial {
    /// `None` when it is over already.
    pub(super) fn new(entry: &Entry<'_>, hash: u64, answer: &Answer, states: States, times: &Times) -> Option<Self> {
        let &Times { sent, heard, longest } = times;
        let lasts = lasts(entry.plan, answer);
        let until = sent + lasts.min(longest);
        if until <= heard {
            return None;
        }
        let renews = if lasts > longest { until - longest / RENEWAL } else { until };
        let kept = |(rule, state): (&Rule, _)| rule.compacted(state, answer.now + (until - heard));
        Some(Self {
            plan: Arc::clone(entry.plan),
            key: entry.key.into(),
            hash,
            cost: entry.operation.cost(),
            answer: answer.clone(),
            states: entry.plan.rules.iter().zip(states).map(kept).collect(),
            heard,
            renews,
            until,
        })
    }

    pub(super) fn is_of(&self, entry: &Entry<'_>) -> bool {
        self.plan.identity == entry.plan.identity && self.key == entry.key
    }

    /// What the store would say at `now`, unless it is to be asked. `renews`: whether this check may be the one that
    /// goes through to renew it.
    #[inline]
    pub(super) fn repeated(&mut self, plan: &Arc<Plan>, now: u64, renews: bool) -> Option<Answer> {
        // A clock that was set back tells of a time of which the store said nothing.
        if self.until <= now || self.heard > now || !self.is_current(plan) {
            return None;
        }
        if self.renews > now {
            return Some(self.answer(now));
        }
        if renews {
            // The others are answered until this one is.
            self.renews = self.until;
        }
        None
    }

    /// Whether it is of this version of its policy.
    #[inline]
    fn is_current(&mut self, plan: &Arc<Plan>) -> bool {
        if Arc::ptr_eq(&self.plan, plan) {
            return true;
        }
        let same = self.plan.policy == plan.policy;
        if same {
            self.plan = Arc::clone(plan);
        }
        same
    }

    fn answer(&self, now: u64) -> Answer {
        let at = self.answer.now + (now - self.heard);
        let limits = self.plan.rules.iter().zip(&self.states).zip(self.answer.views.iter());
        Answer {
            now: at,
            blocked_until: self.answer.blocked_until,
            views: limits.map(|((rule, state), view)| later(rule, state, view, at, self.cost)).collect(),
            source: Source::DenyCache,
            denied_for: (self.until - now) as u32,
            ..Answer::default()
        }
    }
}

/// What a limit says at a later moment, when nobody touched it since.
#[inline]
fn later(rule: &Rule, state: &State, view: &View, at: u64, cost: u64) -> View {
    let remaining = match rule {
        // Only the server knows its log. Where it was full it still is.
        Rule::SlidingLog(_) => view.remaining,
        rule => rule.view(state, at, cost, 0).remaining,
    };
    View {
        remaining,
        admits_at: view.admits_at.map(|moment| moment.max(at)),
        resets_at: view.resets_at.max(at),
        delay: 0,
    }
}

/// For how long a denial would be repeated by the store, and asking it would change nothing.
fn lasts(plan: &Plan, answer: &Answer) -> u64 {
    let admits = answer.views.iter().try_fold(answer.blocked_until, |ends, view| Some(ends.max(view.admits_at?)));
    let mut until = admits.unwrap_or(u64::MAX);
    if plan.policy.options().block_for.is_some() {
        // The first denial after a block begins another one.
        until = until.min(answer.blocked_until);
    }
    if plan.grace > 0 {
        // A key that is forgotten begins anew with the next denial.
        let over = answer.views.iter().fold(answer.blocked_until, |over, view| over.max(view.resets_at));
        until = until.min(over + plan.grace);
    }
    until.saturating_sub(answer.now)
}
