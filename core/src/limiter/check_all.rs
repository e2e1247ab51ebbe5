//! The entries of a `check_all`, and its one Decision.

use std::sync::Arc;

use super::LimiterCore;
use super::operations::{CheckOptions, whole_operation};
use super::policy_ref::{AsPolicy, PolicyRef};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result, named};
use crate::plan::Plan;
use crate::store::MAX_ENTRIES;
use crate::store::request::{Answer, Entry, Operation};

/// What `check_all` takes as an entry: a policy, a key, and a cost or [`CheckOptions`].
pub trait CheckEntry {
    /// Its policy.
    fn policy(&self) -> PolicyRef<'_>;
    /// Its key.
    fn key(&self) -> &str;
    /// Its cost, and what the journal keeps of it.
    fn options(&self) -> CheckOptions;
}

impl<P: AsPolicy, K: AsRef<str>> CheckEntry for (P, K, u64) {
    fn policy(&self) -> PolicyRef<'_> {
        self.0.as_policy()
    }

    fn key(&self) -> &str {
        self.1.as_ref()
    }

    fn options(&self) -> CheckOptions {
        CheckOptions::of_cost(self.2)
    }
}

impl<P: AsPolicy, K: AsRef<str>> CheckEntry for (P, K, CheckOptions) {
    fn policy(&self) -> PolicyRef<'_> {
        self.0.as_policy()
    }

    fn key(&self) -> &str {
        self.1.as_ref()
    }

    fn options(&self) -> CheckOptions {
        self.2.clone()
    }
}

/// The entries of a `check_all`.
pub(super) type CheckAllEntries = Vec<(Arc<Plan>, String, Operation)>;

/// Finds the policy of each entry.
///
/// # Errors
/// Those of the first entry that is wrong, and `config_invalid` for no entries or too many.
pub(super) fn resolved(
    core: &LimiterCore,
    entries: impl IntoIterator<Item = impl CheckEntry>,
) -> Result<CheckAllEntries> {
    let resolve = |entry: &dyn CheckEntry| {
        let plan = core.plan(&entry.policy(), entry.key())?;
        let operation = whole_operation(&named("check_all"), &entry.options(), &plan, 0)?;
        Ok((plan, entry.key().to_owned(), operation))
    };
    let resolved: CheckAllEntries = entries.into_iter().map(|entry| resolve(&entry)).collect::<Result<_>>()?;
    if resolved.is_empty() || resolved.len() > MAX_ENTRIES {
        return Err(Error::config(format!(
            "{} was given {} entries: give from 1 to {MAX_ENTRIES}",
            named("check_all"),
            resolved.len()
        )));
    }
    Ok(resolved)
}

/// The entries, as a store takes them.
pub(super) fn borrowed(resolved: &CheckAllEntries) -> Vec<Entry<'_>> {
    resolved.iter().map(|(plan, key, operation)| Entry { plan, key, operation: operation.clone() }).collect()
}

/// One Decision of the answers. Nothing is charged unless all entries are admitted.
pub(super) fn decided_all(core: &LimiterCore, resolved: CheckAllEntries, answers: Vec<Answer>) -> Result<Decision> {
    let all_admitted =
        resolved.iter().zip(&answers).all(|((plan, ..), answer)| answer.applied || plan.policy.options().shadow);
    let decisions = resolved.into_iter().zip(answers).map(|((plan, key, operation), answer)| {
        let cost = operation.cost();
        let granted = if all_admitted && answer.applied { cost } else { 0 };
        core.answers.decisions.count_check(&plan, &key, &answer);
        Decision::new(core.id, plan, &key, cost, Answer { granted, ..answer })
    });
    Decision::of_all(decisions.collect())
        .ok_or_else(|| Error::new(ErrorKind::StoreRejected, "the store answered without an answer"))
}
