//! Entries about keys that are not stored.

use crate::algorithm::{LEASED_PART, Rule};
use crate::store::request::{Answer, Entry, Operation};

/// True if an entry about a key that is not stored may store it, or brings the numbers of an override that the key has no more.
#[inline]
pub(in crate::store) fn may_store(entry: &Entry<'_>, now: u64) -> bool {
    if !entry.plan.stored_override().is_empty() {
        return true;
    }
    match &entry.operation {
        operation if operation.is_check() => {
            let options = entry.plan.policy.options();
            let joins_line = entry.operation.line().is_some();
            entry.plan.denial_writes || options.journal > 0 || joins_line || admits_unused(entry, now)
        }
        Operation::Charge { .. }
        | Operation::Surcharge { .. }
        | Operation::NoteDenial { .. }
        | Operation::Observe(_) => true,
        Operation::Override(change) => !change.text.is_empty(),
        Operation::Block { micros } => *micros > 0,
        Operation::Lease(terms) => {
            let leasable = |rule: &Rule| rule.leasable(&rule.fresh(), now, terms.life) / LEASED_PART;
            entry.plan.rules.iter().all(|rule| leasable(rule) > 0)
        }
        _ => false,
    }
}

/// True if a key that is not stored has room.
#[inline]
fn admits_unused(entry: &Entry<'_>, now: u64) -> bool {
    match entry.operation.amounts() {
        None => {
            let cost = entry.operation.cost();
            entry.plan.rules.iter().all(|rule| rule.admits(&rule.fresh(), now, cost))
        }
        Some(_) => admits_amounts(entry, now),
    }
}

/// The same for a call with an amount for each limit.
#[cold]
fn admits_amounts(entry: &Entry<'_>, now: u64) -> bool {
    let rules = entry.plan.rules.iter().enumerate();
    rules.into_iter().all(|(index, rule)| entry.operation.amount(index).is_admitted(rule, &rule.fresh(), now))
}

/// The answer about a key that is not stored and will not be.
pub(in crate::store) fn answer(entry: &Entry<'_>, now: u64) -> Answer {
    let applied = match &entry.operation {
        operation if operation.is_check() || matches!(operation, Operation::Lease(_)) => false,
        Operation::Peek { .. } => admits_unused(entry, now),
        Operation::Renew { .. } | Operation::Close { .. } | Operation::Leave { .. } => false,
        _ => true,
    };
    Answer {
        applied,
        now,
        views: entry.plan.unused_views(now, |index| entry.operation.amount(index)),
        ..Answer::default()
    }
}
