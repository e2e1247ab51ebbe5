//! The entries of a `check_all`, and its one Decision.

use tokio::sync::oneshot;

use super::LimiterCore;
use super::call::{gone, sent};
use super::cost::Cost;
use super::operations::{CheckOptions, whole_operation};
use super::overrides::REPETITIONS;
use super::policy_ref::{AsPolicy, PolicyRef};
use super::translation::{AskedOperation, RepeatableCall};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result, named};
use crate::process::waits::Waits;
use crate::resilience::{ask_all, submit_all};
use crate::store::MAX_ENTRIES;
use crate::store::call_context::CallContext;
use crate::store::request::{Answer, ChangedOverride, OwnedEntry, borrowed};

/// An entry of `check_all`: a policy and a key, and if the cost is not 1 also a cost, a [`Cost`] or [`CheckOptions`].
pub trait CheckEntry {
    /// Its policy.
    fn policy(&self) -> PolicyRef<'_>;
    /// Its key.
    fn key(&self) -> &str;
    /// Its cost, and the metadata for the journal.
    fn options(&self) -> CheckOptions;
}

impl<P: AsPolicy, K: AsRef<str>> CheckEntry for (P, K) {
    fn policy(&self) -> PolicyRef<'_> {
        self.0.as_policy()
    }

    fn key(&self) -> &str {
        self.1.as_ref()
    }

    fn options(&self) -> CheckOptions {
        CheckOptions::of_cost(1)
    }
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

impl<P: AsPolicy, K: AsRef<str>> CheckEntry for (P, K, Cost) {
    fn policy(&self) -> PolicyRef<'_> {
        self.0.as_policy()
    }

    fn key(&self) -> &str {
        self.1.as_ref()
    }

    fn options(&self) -> CheckOptions {
        self.2.clone().into()
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
type CheckAllEntries = Vec<OwnedEntry>;

/// The places of entries that were made for other numbers than those of their keys, and the calls as their caller made them.
type AskedEntries = Vec<(usize, AskedOperation)>;

impl LimiterCore {
    /// Decides entries together.
    pub(crate) async fn check_all(
        &self,
        entries: impl IntoIterator<Item = impl CheckEntry>,
        waits: Waits,
    ) -> Result<Decision> {
        let (mut entries, mut asked) = self.resolved(entries)?;
        for _ in 0..=REPETITIONS {
            let context = CallContext::at(self.now());
            let answers = match waits {
                Waits::Here => ask_all(&*self.store, &borrowed(&entries), context),
                _ => {
                    let (answer, answered) = oneshot::channel();
                    match submit_all(&self.store, &borrowed(&entries), context, |result| sent(answer, result)) {
                        Some(result) => result,
                        None => answered.await.unwrap_or_else(|_| Err(gone())),
                    }
                }
            }?;
            if !answers.iter().any(|answer| answer.changed_override().is_some()) {
                return self.decided_all(entries, answers);
            }
            self.learn_overrides(&mut entries, &mut asked, &answers)?;
        }
        Err(Error::new(
            ErrorKind::StoreRejected,
            "overrides of these keys changed again and again during this call: try again",
        ))
    }

    /// Learns the overrides of keys that differ from those of their entries.
    #[cold]
    fn learn_overrides(
        &self,
        entries: &mut CheckAllEntries,
        asked: &mut AskedEntries,
        answers: &[Answer],
    ) -> Result<()> {
        for (place, (entry, answer)) in entries.iter_mut().zip(answers).enumerate() {
            let Some(ChangedOverride::To(text)) = answer.changed_override() else { continue };
            let known = asked.iter().position(|(of, _)| *of == place).unwrap_or_else(|| {
                asked.push((place, AskedOperation::of(entry)));
                asked.len() - 1
            });
            *entry = self.answers.overrides.repetition(entry, &asked[known].1, text)?;
        }
        Ok(())
    }

    /// Finds the policy of each entry.
    ///
    /// # Errors
    /// Those of the first entry that is wrong, and `config_invalid` for no entries or too many.
    fn resolved(&self, entries: impl IntoIterator<Item = impl CheckEntry>) -> Result<(CheckAllEntries, AskedEntries)> {
        let mut asked = AskedEntries::new();
        let resolve = |(place, entry): (usize, _)| {
            let entry: &dyn CheckEntry = &entry;
            let plan = self.plan(&entry.policy(), entry.key())?;
            let operation = whole_operation(&named("check_all"), &entry.options(), &plan, 0)?;
            let own = self.answers.overrides.in_force(&plan, entry.key())?;
            let mut resolved = OwnedEntry { plan, key: entry.key().into(), operation };
            if let Some(own) = own {
                let made = AskedOperation::of(&resolved);
                (resolved.operation, resolved.plan) = (made.operation(&own), own);
                asked.push((place, made));
            }
            Ok(resolved)
        };
        let resolved: CheckAllEntries = entries.into_iter().enumerate().map(resolve).collect::<Result<_>>()?;
        if resolved.is_empty() || resolved.len() > MAX_ENTRIES {
            return Err(Error::config(format!(
                "{} was given {} entries: give from 1 to {MAX_ENTRIES}",
                named("check_all"),
                resolved.len()
            )));
        }
        Ok((resolved, asked))
    }

    /// Makes one Decision from the answers. Nothing is charged unless all entries are admitted.
    fn decided_all(&self, entries: CheckAllEntries, answers: Vec<Answer>) -> Result<Decision> {
        let admitted = |(entry, answer): (&OwnedEntry, &Answer)| answer.applied || entry.plan.policy.options().shadow;
        let all_admitted = entries.iter().zip(&answers).all(admitted);
        let decisions = entries.into_iter().zip(answers).map(|(OwnedEntry { plan, key, operation }, mut answer)| {
            answer.keep_amounts(&operation);
            answer.see_unlimited(&plan);
            let cost = operation.cost();
            if all_admitted && answer.applied {
                answer.granted = cost;
            } else {
                answer.forget_charge();
            }
            self.answers.decisions.count_check(&plan, &key, &answer);
            Decision::new(self.id, plan, key, cost, answer)
        });
        Decision::of_all(decisions.collect())
            .ok_or_else(|| Error::new(ErrorKind::StoreRejected, "the store answered without an answer"))
    }
}
