//! Reads a stored value into a view of each limit. `plan/stored/layout.rs` and `lua/head.lua` have the format.

use smallvec::SmallVec;

use super::annex::Annex;
use crate::algorithm::{MAX_SAFE_INTEGER, Rule, State, View, left};
use crate::plan::{Amount, Plan};
use crate::store::request::{Operation, States, Views};

/// Bytes that the script appends for each `sliding-log`: units used, when the cost is admitted, when the log ends, when one more
/// is admitted, each as a double. Its entries stay on the server.
const LOG_SUMMARY: usize = 32;

/// The parts of a call that the views of its limits depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewContext<'a> {
    pub(super) now: u64,
    pub(super) operation: &'a Operation,
    /// The granted units, or `None` if nothing was done.
    pub(super) granted: Option<u64>,
}

impl ViewContext<'_> {
    /// The amount that the call asked of a limit, and the units that it has just charged.
    #[inline(always)]
    fn of_limit(&self, index: usize) -> (Amount, u64) {
        let amount = self.operation.amount(index);
        (amount, self.operation.charged(amount, self.granted))
    }
}

/// The views of the limits of `plan` in a stored value, and its annex.
///
/// The states go to `states`. The state of a `sliding-log` comes from its summary, because only the server has the log.
/// `None` if the bytes are no value of this plan, or have a state that its rules cannot have. The script never sends
/// such bytes, but another program may have written them.
pub(super) fn read(plan: &Plan, bytes: &[u8], context: ViewContext<'_>, states: &mut States) -> Option<(Views, Annex)> {
    let logs = plan.rules.iter().filter(|rule| matches!(rule, Rule::SlidingLog(_))).count();
    let (value, mut summaries) = bytes.split_at_checked(bytes.len().checked_sub(logs * LOG_SUMMARY)?)?;
    if value.is_empty() {
        states.extend(plan.rules.iter().map(Rule::fresh));
        return Some((plan.unused_views(context.now, |index| context.operation.amount(index)), Annex::default()));
    }
    let mut parts = plan.parts(value)?;
    let mut annex = Annex::read(parts.annex)?;
    let mut views: SmallVec<[View; 1]> = SmallVec::new();
    for (index, rule) in plan.rules.iter().enumerate() {
        let numbers = parts.numbers[index];
        let list = parts.list(&plan.stored.layouts[index].fields, numbers)?;
        let is_possible = |state: &State| rule.can_have(state);
        let (own, charged) = context.of_limit(index);
        let learned = annex.learned.as_ref();
        let amount = learned.map_or(own, |learned| own.beside(learned, index, rule, context.now));
        let (view, used) = match rule {
            Rule::SlidingLog(rule) => {
                let (summary, rest) = summaries.split_at_checked(LOG_SUMMARY)?;
                summaries = rest;
                let summary = LogSummary::read(summary)?;
                let LogSummary { used, release, ends, .. } = summary;
                let state =
                    State::SlidingLog(Box::new(rule.state_of_summary(used, amount.asked().max(1), release, ends)));
                states.push(Some(state).filter(is_possible)?);
                (summary.view(rule.count, context.now, amount), used)
            }
            _ => {
                let state = rule.read(numbers, list).filter(is_possible)?;
                let view = amount.view(rule, &state, context.now, charged);
                let used = if learned.is_some() { rule.used(&state, context.now) } else { 0 };
                states.push(state);
                (view, used)
            }
        };
        let beside = |learned| own.view_beside(learned, view, (index, rule), used, context.now);
        views.push(learned.map_or(view, beside));
    }
    if !parts.is_at_end() {
        return None;
    }
    if let Some(learned) = &annex.learned {
        let units = |index| context.operation.amount(index).units;
        let capacity = |index: usize| plan.rules[index].capacity();
        annex.seen = Some(learned.constrain(&mut views, context.now, capacity, units));
    }
    Some((views.into_iter().collect(), annex))
}

/// The script's summary of a log, in place of its entries.
struct LogSummary {
    used: u64,
    release: u64,
    ends: u64,
    more: u64,
}

impl LogSummary {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut doubles = bytes.chunks_exact(8).map(|bytes| bytes.try_into().map(f64::from_le_bytes).ok());
        let possible = 0.0..=MAX_SAFE_INTEGER as f64;
        let mut next =
            || doubles.next().flatten().filter(|double| possible.contains(double)).map(|double| double as u64);
        Some(Self { used: next()?, release: next()?, ends: next()?, more: next()? })
    }

    fn view(&self, count: u64, now: u64, amount: Amount) -> View {
        let cost = amount.asked().max(1);
        let admits_at = if cost > count {
            None
        } else if self.used + cost <= count {
            Some(now)
        } else {
            Some(self.release)
        };
        let resets_at = if self.used == 0 { now } else { self.ends };
        let more_at = if self.used == 0 { now } else { self.more };
        amount.seen(View { left: left(count, self.used), admits_at, resets_at, more_at, delay: 0 }, now)
    }
}
