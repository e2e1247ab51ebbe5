//! The policies of a limiter by name, and the notations that were parsed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;

use super::notations::Notations;
use super::policy_ref::PolicyRef;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::plan_cache;
use crate::policy::{Policy, may_be_url};

type Plans = HashMap<String, Arc<Plan>, RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// The policies that the limiter was made with. They are in force until a reload; reading them takes no guard.
    first: Plans,
    reloaded: AtomicBool,
    /// The policies of the last reload.
    newer: ArcSwap<Plans>,
    notations: Notations,
}

impl Policies {
    pub(super) fn new(policies: &[Policy]) -> Self {
        Self { first: plans(policies), ..Self::default() }
    }

    /// Replaces all policies at once.
    pub(super) fn replace(&self, policies: &[Policy]) {
        self.newer.store(Arc::new(plans(policies)));
        self.reloaded.store(true, Ordering::Release);
    }

    /// Reads the policies in force.
    #[inline]
    fn with_plans<T>(&self, read: impl FnOnce(&Plans) -> T) -> T {
        if self.reloaded.load(Ordering::Acquire) { read(&self.newer.load()) } else { read(&self.first) }
    }

    #[inline]
    pub(super) fn find(&self, policy: PolicyRef<'_>) -> Result<Arc<Plan>> {
        match policy {
            PolicyRef::Text(text) => self.named(text),
            PolicyRef::Policy(policy) => Ok(plan_cache::plan_of(policy)),
        }
    }

    /// The plan of that name that is in force: a Decision or a hold that outlives a reload must not use the old one.
    pub(super) fn current(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        self.with_plans(|plans| Arc::clone(plans.get(plan.policy.name()).unwrap_or(plan)))
    }

    /// How many policies have a name.
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
        let policy = Policy::parse(text).map_err(|error| {
            // A notation has digits; a text without any was meant as a name. A URL is not shown.
            if text.bytes().any(|byte| byte.is_ascii_digit()) || may_be_url(text) {
                return error;
            }
            let mut names: Vec<String> =
                self.with_plans(|plans| plans.keys().map(|name| format!("{name:?}")).collect());
            names.sort_unstable();
            let shown: String = text.chars().take(80).collect();
            let known =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Error::new(
                ErrorKind::PolicyUnknown,
                format!("{shown:?} is no policy of this limiter ({known}) and no notation such as \"20/minute\""),
            )
        })?;
        Ok(self.notations.keep(text, &policy))
    }
}

fn plans(policies: &[Policy]) -> Plans {
    policies.iter().map(|policy| (policy.name().to_owned(), plan_cache::plan_of(policy))).collect()
}
