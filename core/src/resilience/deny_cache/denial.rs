//! A denial that is repeated: its views at a later moment, and the time until which it is repeated.
//!
//! Two moments are kept apart. How long a denial is repeated counts from when its call was *sent*. The store decided
//! later than that, so a denial is never repeated too long. Its views count from when its answer was *received*, as for
//! the caller that received it, so the moments in its Decisions do not move.

use std::sync::Arc;

use crate::algorithm::{Rule, State, View};
use crate::plan::{Amount, Plan};
use crate::resilience::key_table::{KeyEntry, KnownKey};
use crate::store::request::{Answer, Entry, Operation, RareAnswer, Source, States};
use crate::tables::allocation::{allocated, spilled};
use crate::tables::table_key::TableKeyRef;

/// In the last tenth of its time one check goes through to the store and renews a denial, while all others are still
/// answered. Without that every check between the end of a denial and the next answer would go to the store.
const RENEWAL_PART: u64 = 10;

/// A denial, and until when it may be repeated.
pub(super) struct Denial {
    known: KnownKey,
    pub(super) asked: Asked,
    answer: Answer,
    /// The states from which the answer was computed.
    states: States,
    /// When the answer was received.
    pub(super) received: u64,
    /// The time from which one check may go through to renew it.
    renew_at: u64,
    pub(super) until: u64,
}

/// The units that a denied check asked of each limit.
#[derive(PartialEq)]
pub(super) struct Asked {
    cost: u64,
    amounts: Box<[Amount]>,
}

impl Asked {
    fn of(operation: &Operation) -> Self {
        Self { cost: operation.cost(), amounts: operation.amounts().unwrap_or_default().into() }
    }

    /// True if a check asks the same.
    #[inline]
    pub(super) fn is_of(&self, operation: &Operation) -> bool {
        self.cost == operation.cost() && *self.amounts == *operation.amounts().unwrap_or_default()
    }

    fn amount(&self, index: usize) -> Amount {
        self.amounts.get(index).copied().unwrap_or(Amount::of(self.cost))
    }
}

/// When the call of a denial was sent and answered, and the longest time that the denial may be repeated.
pub(super) struct DenialTimes {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) longest: u64,
}

impl KeyEntry for Denial {
    #[inline]
    fn known(&self) -> &KnownKey {
        &self.known
    }

    fn until(&self) -> u64 {
        self.until
    }
}

impl Denial {
    /// `None` when its time is already over.
    pub(super) fn new(
        entry: &Entry<'_>,
        (hash, key): (u64, TableKeyRef<'_>),
        answer: &Answer,
        states: States,
        times: &DenialTimes,
    ) -> Option<Self> {
        let &DenialTimes { sent, received, longest } = times;
        let lifetime = lifetime(entry, answer);
        let until = sent + lifetime.min(longest);
        if until <= received {
            return None;
        }
        let renew_at = if lifetime > longest { until - longest / RENEWAL_PART } else { until };
        let kept = |(rule, state): (&Rule, _)| rule.compacted(state, answer.now + (until - received));
        let mut denial = Self {
            known: KnownKey::new(entry.plan, key, hash),
            asked: Asked::of(&entry.operation),
            answer: answer.clone(),
            states: entry.plan.rules.iter().zip(states).map(kept).collect(),
            received,
            renew_at,
            until,
        };
        denial.measure();
        Some(denial)
    }

    pub(super) fn is_of(&self, plan: &Plan, key: TableKeyRef<'_>) -> bool {
        self.known.is_of(plan, key)
    }

    fn measure(&mut self) {
        let states = self.states.iter().map(State::heap_bytes).sum::<usize>() + spilled(&self.states);
        self.known.measure(states + self.answer.views.heap_bytes() + allocated(size_of_val(&*self.asked.amounts)));
    }

    /// The answer that the store would give at `now`. `None` if the store must be asked. If `renews` is true, this
    /// check may go through to renew the denial.
    #[inline]
    pub(super) fn repeated(&mut self, plan: &Arc<Plan>, now: u64, renews: bool) -> Option<Answer> {
        // A clock that was set back shows a time that the answer of the store does not cover.
        if self.until <= now || self.received > now || !self.is_current(plan) {
            return None;
        }
        if self.renew_at > now {
            return Some(self.answer(now));
        }
        if renews {
            // All other checks are answered until this one has its answer.
            self.renew_at = self.until;
        }
        None
    }

    /// True if this version of its policy decided it.
    #[inline]
    fn is_current(&mut self, plan: &Arc<Plan>) -> bool {
        if Arc::ptr_eq(&self.known.plan, plan) {
            return true;
        }
        let same = self.known.plan.policy == plan.policy;
        if same {
            self.known.plan = Arc::clone(plan);
            self.measure();
        }
        same
    }

    fn answer(&self, now: u64) -> Answer {
        let at = self.answer.now + (now - self.received);
        let limits = self.known.plan.rules.iter().zip(&self.states).zip(self.answer.views.iter());
        Answer {
            now: at,
            blocked_until: self.answer.blocked_until,
            views: limits
                .enumerate()
                .map(|(index, ((rule, state), view))| later(rule, state, view, at, self.asked.amount(index)))
                .collect(),
            source: Source::DenyCache,
            denied_for: (self.until - now) as u32,
            rare: RareAnswer::of_level(self.answer.block_level()),
            ..Answer::default()
        }
    }
}

/// The view of a limit at a later moment, if its usage has not changed since.
#[inline]
fn later(rule: &Rule, state: &State, view: &View, at: u64, amount: Amount) -> View {
    let left = match rule {
        // Only the server has the log. A log that was full still is.
        Rule::SlidingLog(_) => view.left,
        rule => {
            let later = amount.view(rule, state, at, 0);
            // If a bucket with `initial` has not started because its key is blocked, all its moments move on with the time.
            if rule.ends(state) == 0 && later.resets_at > at {
                return View { delay: 0, ..later };
            }
            later.left
        }
    };
    let admits_at = view.admits_at.map(|moment| moment.max(at));
    View { left, admits_at, resets_at: view.resets_at.max(at), more_at: view.more_at.max(at), delay: 0 }
}

/// The time for which the store would repeat a denial, and for which asking it would change nothing.
fn lifetime(entry: &Entry<'_>, answer: &Answer) -> u64 {
    let plan = entry.plan;
    let admits = answer.views.iter().try_fold(answer.blocked_until, |ends, view| Some(ends.max(view.admits_at?)));
    let mut until = admits.unwrap_or(u64::MAX).min(known_until(entry, answer));
    if plan.policy.options().block_for.is_some() {
        // The first denial after a block begins another block.
        until = until.min(answer.blocked_until);
    }
    if plan.grace > 0 {
        // The next denial of a key that was forgotten writes its state anew.
        let over = answer.views.iter().fold(answer.blocked_until, |over, view| over.max(view.resets_at));
        until = until.min(over + plan.grace);
    }
    until.saturating_sub(answer.now)
}

/// The time until which the views of the limits are known. A limit that did not refuse changes as soon as another
/// process is admitted, or settles the real cost of its units.
fn known_until(entry: &Entry<'_>, answer: &Answer) -> u64 {
    let limits = || entry.plan.rules.iter().zip(&answer.views).enumerate();
    let refuses = |view: &View| view.admits_at.is_none_or(|at| at > answer.now);
    let refuses_all = |(index, (_, view)): (usize, (_, &View))| {
        refuses(view) && view.left <= 0 && entry.operation.amount(index).reserve == 0
    };
    let is_closed = !entry.plan.has_units && (answer.blocked_until > answer.now || limits().any(refuses_all));
    if !is_closed && !answer.views.iter().all(refuses) {
        return 0;
    }
    // Only the server has a log, and knows when its entries leave. Its view stays until more is left, or while it is empty.
    let logs = limits().filter(|(_, (rule, _))| matches!(rule, Rule::SlidingLog(_)));
    logs.fold(u64::MAX, |until, (_, (_, view))| match view.left {
        _ if view.resets_at <= answer.now => until,
        _ if refuses(view) => until.min(view.more_at),
        _ => 0,
    })
}
