//! The policies of a limiter by name, and the notations that were parsed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;

use super::notations::Notations;
use super::policy_ref::PolicyRef;
use super::policy_uses::{PolicyUse, PolicyUses};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::plan::plan_cache::{self, PlanHandle};
use crate::policy::{Policy, did_you_mean, may_be_url};

type Plans = HashMap<String, Arc<Plan>, RandomState>;

/// Finds the plan of the policy that a name or a notation means now.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// The policies that the limiter was made with. They are in force until a reload. Reading them takes no guard.
    first: Plans,
    /// The number of reloads.
    generation: AtomicU64,
    /// The policies of the last reload.
    newer: ArcSwap<Plans>,
    /// The policies that were given in code. They stay.
    in_code: Vec<Policy>,
    uses: PolicyUses,
    notations: Notations,
}

impl Policies {
    pub(super) fn new(in_file: &[Policy], in_code: Vec<Policy>) -> Self {
        Self { first: plans(in_file.iter().chain(&in_code)), in_code, ..Self::default() }
    }

    pub(super) fn in_code(&self) -> &[Policy] {
        &self.in_code
    }

    /// Replaces all policies of the file at once, unless one that is in use is gone. Then the error names it.
    pub(super) fn replace(&self, in_file: &[Policy]) -> std::result::Result<(), String> {
        let plans = plans(in_file.iter().chain(&self.in_code));
        let names: HashSet<String> = plans.keys().cloned().collect();
        self.uses.replace(
            |name| names.contains(name),
            || {
                self.newer.store(Arc::new(plans));
                self.generation.fetch_add(1, Ordering::Release);
            },
        )
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Registers a use of a policy, if it is named. Fails if the policy does not exist.
    pub(super) fn register_use(&self, policy: PolicyRef<'_>, by: &str) -> Result<PolicyUse> {
        self.uses.register(by, || {
            self.find(policy)?;
            Ok(match policy {
                PolicyRef::Text(text) if self.with_plans(|plans| plans.contains_key(text)) => Some(text.to_owned()),
                _ => None,
            })
        })
    }

    /// Reads the policies in force.
    #[inline]
    fn with_plans<T>(&self, read: impl FnOnce(&Plans) -> T) -> T {
        if self.generation() == 0 { read(&self.first) } else { read(&self.newer.load()) }
    }

    #[inline(always)]
    pub(super) fn find(&self, policy: PolicyRef<'_>) -> Result<Arc<Plan>> {
        match policy {
            PolicyRef::Text(text) => self.named(text),
            PolicyRef::Policy(policy) => Ok(plan_cache::plan_of(policy)),
        }
    }

    /// Reads a plan without a handle of it, if it has a name.
    #[inline(always)]
    pub(super) fn with<T>(&self, policy: PolicyRef<'_>, read: impl Fn(&Arc<Plan>) -> T) -> Result<T> {
        if let PolicyRef::Text(text) = policy
            && let Some(value) = self.with_plans(|plans| plans.get(text).map(&read))
        {
            return Ok(value);
        }
        self.find(policy).map(|plan| read(&PlanHandle::new(plan)))
    }

    /// The plan of that name that is in force. A Decision or a hold that outlives a reload must not use the old one.
    pub(super) fn current(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        if plan.policy.learning().is_some() {
            return Arc::clone(plan);
        }
        self.with_plans(|plans| Arc::clone(plans.get(plan.policy.name()).unwrap_or(plan)))
    }

    /// Visits the plans in force of all named policies, in the order of their names.
    pub(super) fn each(&self, visit: impl FnMut(&Plan)) {
        self.with_plans(|plans| {
            let mut named: Vec<&Plan> = plans.values().map(|plan| &**plan).collect();
            named.sort_unstable_by_key(|plan| plan.policy.name());
            named.into_iter().for_each(visit);
        });
    }

    /// The number of named policies.
    pub(super) fn count(&self) -> usize {
        self.with_plans(Plans::len)
    }

    #[inline]
    fn named(&self, text: &str) -> Result<Arc<Plan>> {
        if let Some(plan) = self.with_plans(|plans| plans.get(text).map(plan_cache::handle)) {
            return Ok(plan);
        }
        if let Some(plan) = self.notations.find(text) {
            return Ok(plan);
        }
        self.parse(text)
    }

    #[cold]
    fn parse(&self, text: &str) -> Result<Arc<Plan>> {
        match Policy::parse(text) {
            Ok(policy) => Ok(self.notations.keep(text, &policy)),
            // A reload may have brought the name in between. An error lists the policies of the moment when the name is
            // none of them.
            Err(error) => self.with_plans(|plans| match plans.get(text) {
                Some(plan) => Ok(plan_cache::handle(plan)),
                None => Err(unknown(text, plans, error)),
            }),
        }
    }
}

/// The error for a text that is neither a notation nor the name of a policy.
fn unknown(text: &str, plans: &Plans, error: Error) -> Error {
    // A notation has digits, so a text without any was meant as a name. A URL is not shown.
    if text.bytes().any(|byte| byte.is_ascii_digit()) || may_be_url(text) {
        return error;
    }
    let mut names: Vec<&str> = plans.keys().map(String::as_str).collect();
    names.sort_unstable();
    let shown: String = text.chars().take(80).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", quoted.join(", ")) };
    let near = did_you_mean(text, names);
    Error::new(
        ErrorKind::PolicyUnknown,
        format!("{shown:?} is neither a policy of this limiter ({known}) nor a notation such as \"20/minute\"{near}"),
    )
}

fn plans<'a>(policies: impl Iterator<Item = &'a Policy>) -> Plans {
    policies.map(|policy| (policy.name().to_owned(), plan_cache::plan_of(policy))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Policies, PolicyRef};
    use crate::{Limiter, Policy};

    #[test]
    fn an_error_beside_a_reload_does_not_contradict_itself() {
        let policy = Policy::parse("5/minute").and_then(|policy| policy.named("login")).expect("a policy");
        let policies = Policies::new(&[], Vec::new());
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut in_file = std::slice::from_ref(&policy);
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    policies.replace(in_file).expect("nothing uses it");
                    in_file = if in_file.is_empty() { std::slice::from_ref(&policy) } else { &[] };
                }
            });
            for _ in 0..100_000 {
                if let Err(error) = policies.find(PolicyRef::Text("login")) {
                    let known = error.to_string().contains("it has none");
                    ended.store(!known, std::sync::atomic::Ordering::Relaxed);
                    assert!(known, "{error}");
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one() {
        let builder =
            Limiter::builder().policy("login", "5/minute").and_then(|builder| builder.policy("search", "9/s"));
        let limiter = builder.and_then(crate::Builder::build).expect("a limiter");
        let message = |name: &str| limiter.check(name, "k").expect_err(name).to_string();
        assert!(message("lgoin").ends_with("; did you mean `login`?"), "{}", message("lgoin"));
        assert!(!message("other").contains("did you mean"), "{}", message("other"));
    }
}
