//! Overrides of keys: calls about them, and how keys get their numbers. docs/adr/0035 has the reasons.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::policy_ref::AsPolicy;
use super::translation::{RepeatableCall, asked_or};
use super::{AsyncLimiter, LimiterCore};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::{KeyOverride, Policy};
use crate::process::waits::Waits;
use crate::resilience::{KnownOverrides, ask, submit, try_immediate};
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::completion::WakeTarget;
use crate::store::request::{
    Answer, ChangedOverride, Entry, MAX_OVERRIDDEN_KEY, Operation, OverrideChange, OwnedEntry,
};

/// A call is repeated this often if the numbers of its key change meanwhile.
const MAX_REPETITIONS: usize = 3;
/// The longest time for an override. Without an end it stays for ever.
const LONGEST: Duration = Duration::from_secs(3_660 * 86_400);

/// A key that has an override.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverriddenKey {
    /// The key.
    pub key: String,
    /// Its limits as a notation, or `none`.
    pub limits: String,
    /// When the override ends, if ever.
    pub expires_at: Option<SystemTime>,
}

impl KnownOverrides {
    /// The plan with the override of a key, unless the call brings an override already.
    pub(super) fn in_force(&self, plan: &Arc<Plan>, key: &str) -> Result<Option<Arc<Plan>>> {
        if plan.overridden.is_some() || !self.concern(plan) {
            return Ok(None);
        }
        self.plan_of(plan, key)
    }

    /// Learns from the answer to a call that was not made. Returns the entry for the repetition.
    #[cold]
    pub(super) fn repetition(&self, entry: &OwnedEntry, asked: &dyn RepeatableCall, text: &str) -> Result<OwnedEntry> {
        let plan = self.learn(Plan::base(&entry.plan), &entry.key, text)?;
        let operation = asked.operation(&plan);
        Ok(OwnedEntry { plan, key: entry.key.clone(), operation })
    }

    /// Repeats a call that was not made, on this thread. Without `here` it is only made if its answer needs no waiting.
    #[cold]
    pub(super) fn repeated(
        &self,
        store: &dyn Store,
        (entry, asked): (&Entry<'_>, Option<Box<dyn RepeatableCall>>),
        first: Answer,
        now: Option<u64>,
        here: bool,
    ) -> Option<(OwnedEntry, Result<Answer>)> {
        let (mut owned, mut answer) = (OwnedEntry::from(entry), first);
        let asked = asked_or(asked, &owned);
        for _ in 0..MAX_REPETITIONS {
            let Some(ChangedOverride::To(text)) = answer.changed_override() else { break };
            let repetition = self.repetition(&owned, &*asked, text);
            let context = after(&answer, now);
            owned = match repetition {
                Ok(repetition) => repetition,
                Err(error) => return Some((owned, Err(error))),
            };
            let result =
                if here { ask(store, &owned.entry(), context) } else { try_immediate(store, &owned.entry(), context)? };
            answer = match result {
                Ok(answer) => answer,
                Err(error) => return Some((owned, Err(error))),
            };
        }
        let result = if answer.changed_override().is_some() { Err(unsettled(&owned.plan)) } else { Ok(answer) };
        Some((owned, result))
    }

    /// Repeats a call that was not made, for a caller that goes on.
    #[cold]
    pub(super) fn repeat_later(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        (owned, asked): (OwnedEntry, Option<Box<dyn RepeatableCall>>),
        answer: Answer,
        (now, left): (Option<u64>, usize),
        done: impl FnOnce(OwnedEntry, Result<Answer>) -> WakeTarget + Send + 'static,
    ) -> WakeTarget {
        let asked = asked_or(asked, &owned);
        let repetition = match answer.changed_override() {
            Some(ChangedOverride::To(text)) if left > 0 => self.repetition(&owned, &*asked, text),
            _ => Err(unsettled(&owned.plan)),
        };
        let owned = match repetition {
            Ok(repetition) => repetition,
            Err(error) => return done(owned, Err(error)),
        };
        let mut done = Some((done, Some(asked)));
        let answers = Arc::clone(self);
        let immediate = submit(store, &owned.entry(), after(&answer, now), || {
            let done = done.take();
            move |store: &Arc<dyn Store>, owned: OwnedEntry, result: Result<Answer>| {
                let (done, asked) = done?;
                match result {
                    // A box ends the recursion of types.
                    Ok(answer) if answer.changed_override().is_some() => {
                        let done: Box<dyn FnOnce(OwnedEntry, Result<Answer>) -> WakeTarget + Send> = Box::new(done);
                        answers.repeat_later(store, (owned, asked), answer, (now, left - 1), done)
                    }
                    result => done(owned, result),
                }
            }
        });
        match (immediate, done) {
            (Some(Ok(answer)), Some((done, asked))) if answer.changed_override().is_some() => {
                let done: Box<dyn FnOnce(OwnedEntry, Result<Answer>) -> WakeTarget + Send> = Box::new(done);
                self.repeat_later(store, (owned, asked), answer, (now, left - 1), done)
            }
            (Some(result), Some((done, _))) => done(owned, result),
            _ => None,
        }
    }
}

/// How often a call may be repeated for a caller that goes on.
pub(super) const REPETITIONS: usize = MAX_REPETITIONS;

/// A repetition has the rest of the time of its call.
fn after(answer: &Answer, now: Option<u64>) -> CallContext<'static> {
    let deadline = answer.rare.as_ref().and_then(|rare| rare.deadline);
    CallContext { deadline, ..CallContext::at(now) }
}

fn unsettled(plan: &Plan) -> Error {
    Error::new(
        ErrorKind::StoreRejected,
        format!(
            "the numbers of a key of the policy {:?} changed {MAX_REPETITIONS} times during this call",
            plan.policy.name()
        ),
    )
}

impl LimiterCore {
    /// The plan that is in force for a Decision or a hold that outlives a reload.
    pub(super) fn current(&self, plan: &Arc<Plan>, key: &str) -> Arc<Plan> {
        let base = self.policies.current(Plan::base(plan));
        self.answers.overrides.in_force(&base, key).ok().flatten().unwrap_or(base)
    }

    pub(super) async fn set_override(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        key: &str,
        own: Option<&KeyOverride>,
        ttl: Option<Duration>,
        waits: Waits,
    ) -> Result<()> {
        let base = self.plan(policy, key)?;
        let micros = ttl.map_or(0, |ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
        if let Some(ttl) = ttl.filter(|ttl| micros == 0 || *ttl > LONGEST) {
            return Err(Error::config(format!(
                "a ttl of {} seconds is out of range: it must be more than 0 and up to 10 years, and without a ttl an override stays until it \
                 is removed",
                ttl.as_secs_f64()
            )));
        }
        if key.len() > MAX_OVERRIDDEN_KEY {
            return Err(Error::new(
                ErrorKind::KeyInvalid,
                format!("the key of an override has {} bytes: it may have at most {MAX_OVERRIDDEN_KEY}", key.len()),
            ));
        }
        let text = own.map(KeyOverride::text).transpose()?.unwrap_or_default();
        let plan = match own {
            Some(own) => Plan::overriding(&base, own, text.clone())?,
            None => Arc::clone(&base),
        };
        let change =
            Arc::new(OverrideChange { key: key.to_owned(), text, ttl: if own.is_some() { micros } else { 0 } });
        let (now, sent) = (self.now(), Arc::clone(&change));
        self.make_several("tidegate-override", waits, move |store| {
            let operation = Operation::Override(Arc::clone(&sent));
            store.change_override(&Entry { plan: &plan, key: &sent.key, operation }, now)
        })
        .await?;
        self.answers.overrides.learn(&base, key, &change.text)?;
        self.answers.wait_queues.units_freed(&base, key);
        Ok(())
    }

    pub(super) async fn overrides(
        self: &Arc<Self>,
        policy: &impl AsPolicy,
        waits: Waits,
    ) -> Result<Vec<OverriddenKey>> {
        let (plan, now) = (self.plan(policy, "")?, self.now());
        let list = move |store: &dyn Store| {
            store.overrides(&Entry { plan: &plan, key: "", operation: Operation::ListOverrides }, now)
        };
        let mut stored = self.make_several("tidegate-overrides", waits, list).await?.into_overrides();
        stored.sort_by(|a, b| a.key.cmp(&b.key));
        stored.dedup_by(|a, b| a.key == b.key);
        let of = |own: crate::store::request::StoredOverride| OverriddenKey {
            key: own.key,
            limits: own.text,
            expires_at: (own.ends > 0).then(|| UNIX_EPOCH + Duration::from_micros(own.ends)),
        };
        Ok(stored.into_iter().map(of).collect())
    }
}

impl AsyncLimiter {
    /// The policy with the numbers for a key, as far as this process knows.
    ///
    /// # Errors
    /// As [`AsyncLimiter::policy`].
    #[doc(hidden)]
    pub fn policy_in_force(&self, policy: impl AsPolicy, key: &str) -> Result<Policy> {
        let plan = self.core.plan(&policy, key)?;
        let own = self.core.answers.overrides.in_force(&plan, key)?;
        Ok(own.unwrap_or(plan).policy.clone())
    }
}

impl Decision {
    /// True if an override of its key answered instead of the policy: `limits` has its numbers. A key without limits is always allowed.
    #[must_use]
    pub fn overridden(&self) -> bool {
        self.plan().overridden.is_some()
    }
}
