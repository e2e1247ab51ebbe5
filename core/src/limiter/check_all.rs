//! The entries of a `check_all`, and its one Decision.

use std::sync::Arc;

use super::{AsPolicy, LimiterCore, valid_cost};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::store::MAX_ENTRIES;
use crate::store::request::{Answer, Entry, Operation};

/// The entries of a `check_all`.
pub(super) type CheckAllEntries = Vec<(Arc<Plan>, String, u64)>;

/// Finds the policy of each entry.
///
/// # Errors
/// Those of the first entry that is wrong, and `config_invalid` for no entries or too many.
pub(super) fn resolved<P: AsPolicy>(
    core: &LimiterCore,
    entries: impl IntoIterator<Item = (P, impl AsRef<str>, u64)>,
) -> Result<CheckAllEntries> {
    let resolved: CheckAllEntries = entries
        .into_iter()
        .map(|(policy, key, cost)| Ok((core.plan(&policy, key.as_ref())?, key.as_ref().to_owned(), valid_cost(cost)?)))
        .collect::<Result<_>>()?;
    if resolved.is_empty() || resolved.len() > MAX_ENTRIES {
        return Err(Error::config(format!(
            "check_all was given {} entries: give from 1 to {MAX_ENTRIES}",
            resolved.len()
        )));
    }
    Ok(resolved)
}

/// The entries, as a store takes them.
pub(super) fn borrowed(resolved: &CheckAllEntries) -> Vec<Entry<'_>> {
    let operation = |cost: u64| Operation::Check { cost, hold: 0, meta: None };
    resolved.iter().map(|(plan, key, cost)| Entry { plan, key, operation: operation(*cost) }).collect()
}

/// One Decision of the answers. Nothing is charged unless all entries are admitted.
pub(super) fn decided_all(resolved: CheckAllEntries, answers: Vec<Answer>) -> Result<Decision> {
    let all_admitted =
        resolved.iter().zip(&answers).all(|((plan, ..), answer)| answer.applied || plan.policy.options().shadow);
    let decisions = resolved.into_iter().zip(answers).map(|((plan, key, cost), answer)| {
        let granted = if all_admitted && answer.applied { cost } else { 0 };
        Decision::new(plan, &key, cost, Answer { granted, ..answer })
    });
    Decision::of_all(decisions.collect())
        .ok_or_else(|| Error::new(ErrorKind::StoreRejected, "the store answered without an answer"))
}
