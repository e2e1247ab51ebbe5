//! The answer to a check, as data.

mod parts;
mod settlement;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use compact_str::CompactString;

use crate::algorithm::View;
use crate::plan::Plan;
use crate::policy::{Algorithm, Limit, Period, Policy, Unit};
use crate::store::request::{Answer, Charge, SimpleAnswer, Source};
use parts::{DecisionParts, KeptParts};
pub(crate) use settlement::{LimiterId, Settlement};

/// The answer to a check. A denial is a Decision, never an error.
pub struct Decision {
    parts: KeptParts,
}

/// The state of one limit of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitState {
    /// How it counts.
    pub algorithm: Algorithm,
    /// The most units it ever admits at once.
    pub limit: u64,
    /// The unit that it counts, if it names one.
    pub unit: Option<Unit>,
    /// The units that the call asked of it.
    pub cost: u64,
    /// Its period. For `concurrency`, the ttl of the holds.
    pub period: Period,
    /// Units it would admit now.
    pub remaining: u64,
    /// Units used beyond it, by a charge or because its numbers were lowered.
    pub over: u64,
    /// The time until it admits the cost: zero if it does now, `None` if it never will.
    pub retry_after: Option<Duration>,
    /// The time until it admits the same cost again, also for an allowed Decision.
    pub next_after: Option<Duration>,
    /// The time until it is as if unused.
    pub reset_after: Duration,
    /// True if it refused.
    pub exceeded: bool,
}

impl Decision {
    #[inline(always)]
    pub(crate) fn new(
        limiter: LimiterId,
        plan: Arc<Plan>,
        key: impl Into<CompactString>,
        cost: u64,
        answer: Answer,
    ) -> Self {
        Self { parts: KeptParts::new(limiter.here(), plan, key.into(), cost, answer) }
    }

    /// Makes the Decision from the answer of a policy with one limit.
    #[inline(always)]
    pub(crate) fn of_simple(limiter: LimiterId, plan: &Arc<Plan>, key: &str, cost: u64, answer: &SimpleAnswer) -> Self {
        Self { parts: KeptParts::of_simple(limiter.here(), plan, key, cost, answer) }
    }

    /// The limiter that made it.
    pub(crate) fn limiter(&self) -> LimiterId {
        self.parts.limiter
    }

    pub(crate) fn settlement(&self) -> &Settlement {
        &self.parts.settlement
    }

    /// Chooses one of several Decisions: the first denial, else the one with the least left in proportion.
    pub(crate) fn of_all(decisions: Vec<Self>) -> Option<Self> {
        let first = decisions.iter().find(|decision| !decision.allowed());
        let tightest = || decisions.iter().min_by(|a, b| a.by_what_is_left(b));
        let chosen = first.or_else(tightest)?;
        // It is settled through its entries, so it does not share the settlement of the chosen one.
        let DecisionParts { plan, key, cost, answer, limiter, .. } = &*chosen.parts;
        let whole = KeptParts::new(*limiter, Arc::clone(plan), key.clone(), *cost, answer.clone());
        let whole = Self { parts: whole };
        Some(whole.with_decisions(decisions))
    }

    /// Adds the Decision of each entry of a `check_all`.
    pub(crate) fn with_decisions(mut self, decisions: Vec<Self>) -> Self {
        self.parts.decisions = (!decisions.is_empty()).then(|| decisions.into());
        self
    }

    /// The consumed units for each limit of `plan`, which may be another version of its policy.
    pub(crate) fn charged_amounts(&self, plan: &Plan) -> impl Iterator<Item = u64> {
        let own = &self.parts.plan.format.tags;
        plan.format.tags.iter().zip(plan.policy.limits()).map(move |(tag, limit)| {
            let index = own.iter().position(|own| own.is_same_limit(tag));
            let unknown = if limit.unit().is_none() { self.granted() } else { 0 };
            index.map_or(unknown, |index| self.parts.answer.charged(index))
        })
    }

    /// The units that it consumed of one of its limits.
    pub(crate) fn charged(&self, index: usize) -> u64 {
        self.parts.answer.charged(index)
    }

    /// Its charge, in the form that the limits of `plan` need to give it back. `plan` may be another version of its policy.
    pub(crate) fn charge(&self, plan: &Plan) -> Charge {
        let limits = plan.format.tags.iter().zip(&plan.rules).map(|(tag, rule)| {
            let index = self.parts.plan.format.tags.iter().position(|own| own.is_same_limit(tag))?;
            match (rule.meter(), self.parts.plan.rules[index].meter()) {
                (Some(meter), Some(own)) if meter.has_interval_of(own) => {
                    Some(self.parts.answer.views.get(index).map_or(0, |view| view.resets_at))
                }
                (Some(meter), Some(own)) => meter.drains_no_slower_than(own).then_some(0),
                _ => Some(0),
            }
        });
        Charge { limits: limits.collect(), ..self.parts.answer.charge() }
    }

    /// The denial of a caller that found no place among those who wait, which has seen this.
    pub(crate) fn denied_by_others(mut self) -> Self {
        self.parts.answer.applied = false;
        self.parts.answer.yield_to_others();
        self
    }

    pub(crate) fn answer(&self) -> &Answer {
        &self.parts.answer
    }

    pub(crate) fn into_answer(mut self) -> Answer {
        std::mem::take(&mut self.parts.answer)
    }

    /// The consumed units: the cost or 0, for a partial check anything between, for a charge always the cost. `settle`
    /// starts from this number.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.parts.answer.granted
    }

    pub(crate) fn plan(&self) -> &Arc<Plan> {
        &self.parts.plan
    }

    /// True if its policy never denies.
    pub(crate) fn in_shadow(&self) -> bool {
        self.parts.plan.policy.options().shadow
    }

    /// True if limits learned from the responses to outgoing calls decided: they refuse, or give the remaining units.
    #[must_use]
    pub fn learned(&self) -> bool {
        let Some(learned) = self.parts.answer.learned() else { return false };
        self.blocked() && learned.wait_until >= self.parts.answer.blocked_until
            || learned.limits.iter().any(|(index, _)| usize::from(*index) == self.binding_index())
    }

    /// The most units that a limit ever admits at once, or less if a lower limit was learned.
    fn capacity(&self, index: usize) -> u64 {
        let own = self.parts.plan.rules[index].capacity();
        let learned = || self.parts.answer.learned()?.limits.iter().find(|(of, _)| usize::from(*of) == index);
        learned().map_or(own, |(_, limit)| own.min(*limit))
    }

    /// The index of the limit that `limit` and `remaining` are about.
    #[must_use]
    pub fn binding_index(&self) -> usize {
        self.binding().0
    }

    /// The limit that `limit` and `remaining` are about.
    pub(crate) fn binding_limit(&self) -> &Limit {
        &self.parts.plan.policy.limits()[self.binding_index()]
    }

    /// Compares the remaining shares.
    pub(crate) fn by_what_is_left(&self, other: &Self) -> Ordering {
        by_share((self.remaining(), self.limit()), (other.remaining(), other.limit()))
    }

    fn blocked(&self) -> bool {
        self.parts.answer.blocked_until > self.parts.answer.now
    }

    /// True if a limit refused when it was asked.
    fn exceeds(&self, (index, view): (usize, &View)) -> bool {
        !self.parts.answer.applied
            && match self.parts.answer.refused {
                Some(refused) => refused >> index & 1 == 1,
                None => view.admits_at.is_none_or(|at| at > self.parts.answer.now),
            }
    }

    fn until(&self, moment: u64) -> Duration {
        Duration::from_micros(moment.saturating_sub(self.parts.answer.now))
    }

    /// The binding limit: the one that refused and takes longest, else the one with least left in proportion.
    fn binding(&self) -> (usize, &View) {
        let share = |(index, view): &(usize, &View)| (view.remaining(), self.capacity(*index));
        let order = |a: &(usize, &View), b: &(usize, &View)| match (self.exceeds(*a), self.exceeds(*b)) {
            (true, true) => b.1.admits_at.unwrap_or(u64::MAX).cmp(&a.1.admits_at.unwrap_or(u64::MAX)),
            (false, false) => by_share(share(a), share(b)),
            (one, other) => other.cmp(&one),
        };
        self.parts.answer.views.iter().enumerate().min_by(order).unwrap_or((0, &EMPTY))
    }

    /// True if the call was admitted.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.parts.answer.applied || self.in_shadow()
    }

    /// True if a shadow policy would have denied.
    #[must_use]
    pub fn shadow(&self) -> bool {
        !self.parts.answer.applied && self.in_shadow()
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.parts.plan.policy.name()
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.parts.key
    }

    /// The units that were asked for.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.parts.cost
    }

    /// The most units that the binding limit ever admits at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.capacity(self.binding().0)
    }

    /// The units that the binding limit would admit now. 0 while the key is blocked.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        if self.blocked() { 0 } else { self.binding().1.remaining() }
    }

    /// The time until the same check is admitted, if no other call uses the key: zero when allowed, `None` for never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.allowed() {
            return Some(Duration::ZERO);
        }
        self.next_after()
    }

    /// The time until the same check is admitted again, if no other call uses the key, also for an allowed Decision.
    /// Zero if another one is admitted at once, `None` for never.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let limiter = tidegate::Limiter::builder().policy("mail", "gcra 1/s burst 2")?.build()?;
    /// assert_eq!(limiter.check("mail", "alice")?.next_after(), Some(Duration::ZERO));
    /// let last = limiter.check("mail", "alice")?;
    /// assert!(last.allowed() && last.next_after() > Some(Duration::from_millis(500)));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    #[must_use]
    pub fn next_after(&self) -> Option<Duration> {
        let entries = self.decisions();
        if !entries.is_empty() && self.allowed() {
            return entries.iter().try_fold(Duration::ZERO, |longest, entry| Some(longest.max(entry.next_after()?)));
        }
        if self.in_shadow() {
            return Some(Duration::ZERO);
        }
        let mut moment = self.parts.answer.blocked_until;
        for view in &self.parts.answer.views {
            moment = moment.max(view.admits_at?);
        }
        Some(self.until(moment))
    }

    /// The time until the binding limit is as if unused and no block of the key is left.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.until(self.resets_at())
    }

    /// The moment when `reset_after` ends. It stays the same between calls.
    #[must_use]
    pub fn reset_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.parts.answer.calendar_at(self.resets_at()))
    }

    fn resets_at(&self) -> u64 {
        self.binding().1.resets_at.max(if self.blocked() { self.parts.answer.blocked_until } else { 0 })
    }

    /// `leaky-bucket`: how long to wait before going on.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if !self.parts.answer.applied {
            return Duration::ZERO;
        }
        Duration::from_micros(self.parts.answer.views.iter().map(|view| view.delay).max().unwrap_or(0))
    }

    /// The state of each limit, in the order of the policy.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitState> + '_ {
        self.parts.answer.views.iter().enumerate().map(|(index, view)| {
            let limit = &self.parts.plan.policy.limits()[index];
            LimitState {
                algorithm: limit.algorithm(),
                limit: self.capacity(index),
                unit: limit.unit().cloned(),
                cost: self.parts.answer.amounts().get(index).map_or(self.parts.cost, |amount| amount.units),
                period: limit.period(),
                remaining: view.remaining(),
                over: view.over(),
                retry_after: if self.parts.answer.applied {
                    Some(Duration::ZERO)
                } else {
                    view.admits_at.map(|at| self.until(at))
                },
                next_after: view.admits_at.map(|at| self.until(at)),
                reset_after: self.until(view.resets_at),
                exceeded: self.exceeds((index, view)),
            }
        })
    }

    /// The source of the answer.
    #[must_use]
    pub fn source(&self) -> Source {
        self.parts.answer.source
    }

    /// True if it is denied because the store failed (`on_store_error: closed`), and not because a limit refused. A web
    /// layer answers 503 then, and 429 otherwise.
    #[must_use]
    pub fn unavailable(&self) -> bool {
        self.parts.answer.unavailable && !self.allowed()
    }

    /// True if it is denied by a block that follows repeated denials, for a policy with several lengths in `block_for`.
    /// A block by hand does not count.
    #[must_use]
    pub fn abnormal(&self) -> bool {
        self.blocked() && self.parts.answer.block_level().by_denials() > 0 && !self.allowed()
    }

    /// How long a caller may repeat this denial for the same policy, key and cost without asking again, counted from
    /// the moment of this answer. It ends when the call may be admitted, at the latest after the limiter's
    /// `deny_cache`. `None` if every check must ask: this one was allowed, or denials are counted, or the cache is off.
    #[must_use]
    pub fn denied_for(&self) -> Option<Duration> {
        (self.parts.answer.denied_for > 0 && !self.parts.answer.applied)
            .then(|| Duration::from_micros(self.parts.answer.denied_for.into()))
    }

    /// The Decision of each entry of a `check_all`. Every other Decision has none.
    #[must_use]
    pub fn decisions(&self) -> &[Decision] {
        self.parts.decisions.as_deref().unwrap_or_default()
    }

    /// The Decisions about single policies: those of a `check_all`, or this one alone.
    pub(crate) fn entries(&self) -> &[Decision] {
        self.parts.decisions.as_deref().unwrap_or(std::slice::from_ref(self))
    }

    /// The time of the answer by the store's own clock, since 1970.
    #[must_use]
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.parts.answer.calendar_at(self.parts.answer.now))
    }

    /// The policy that was asked.
    pub(crate) fn asked_policy(&self) -> &Policy {
        &self.parts.plan.policy
    }

    /// The time until the binding limit admits more units than now, if no other call uses the key. `None` if none of it
    /// is used, if its units are held and may come back at any moment, and while the key is blocked.
    ///
    /// It is exact or later. If only a part of the state is known, as for a `sliding-log` on Redis that admits more, it
    /// is the time until all units are back.
    pub(crate) fn more_after(&self) -> Option<Duration> {
        let (index, view) = self.binding();
        let known = !self.blocked() && !self.parts.answer.views.is_empty();
        known.then(|| self.parts.plan.rules[index].more_at(view)).flatten().map(|moment| self.until(moment))
    }
}

impl Clone for Decision {
    /// The two share one settlement.
    fn clone(&self) -> Self {
        let DecisionParts { plan, key, cost, answer, decisions, limiter, settlement } = &*self.parts;
        let mut parts = KeptParts::new(*limiter, Arc::clone(plan), key.clone(), *cost, answer.clone());
        (parts.decisions, parts.settlement) = (decisions.clone(), settlement.clone());
        Self { parts }
    }
}

/// Compares two remaining shares of their limits, without rounding.
fn by_share((left, limit): (u64, u64), (other_left, other_limit): (u64, u64)) -> Ordering {
    (u128::from(left) * u128::from(other_limit.max(1))).cmp(&(u128::from(other_left) * u128::from(limit.max(1))))
}

/// The most characters of a text that `Debug` shows.
const MAX_SHOWN: usize = 64;

const EMPTY: View = View { left: 0, admits_at: None, resets_at: 0, delay: 0, more_at: 0 };

/// A text of the caller, which may be long.
struct Shortened<'a>(&'a str);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_SHOWN) {
            None => self.0.fmt(f),
            Some((end, _)) => write!(f, "{:?}… ({} characters)", &self.0[..end], self.0.chars().count()),
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Decision");
        shown
            .field("allowed", &self.allowed())
            .field("policy", &Shortened(self.policy()))
            .field("key", &Shortened(self.key()))
            .field("cost", &self.parts.cost)
            .field("granted", &self.granted())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("next_after", &self.next_after())
            .field("reset_after", &self.reset_after());
        if !self.delay().is_zero() {
            shown.field("delay", &self.delay());
        }
        if self.shadow() {
            shown.field("shadow", &true);
        }
        if self.learned() {
            shown.field("learned", &true);
        }
        if self.unavailable() {
            shown.field("unavailable", &true);
        }
        shown.field("source", &self.source().name());
        if self.decisions().is_empty() {
            shown.field("limits", &self.limits().collect::<Vec<_>>());
        } else {
            shown.field("decisions", &self.decisions());
        }
        shown.finish()
    }
}
