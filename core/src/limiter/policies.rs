//! The policies a limiter knows, by name, and the notations it has read.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::Policy;

/// Notations kept ready. A program that writes more different ones in place makes them up as it goes; they are read
/// anew each time then.
const NOTATIONS: usize = 10_000;

type Plans = HashMap<String, Arc<Plan>, RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Policies {
    named: ArcSwap<Plans>,
    notations: RwLock<Plans>,
}

/// What a call takes as its policy: the name of one, a notation written in place, or a [`Policy`].
pub trait AsPolicy {
    /// Which of them it is.
    fn as_policy(&self) -> PolicyRef<'_>;
}

/// A policy as a call names it.
#[derive(Debug, Clone, Copy)]
pub enum PolicyRef<'a> {
    /// A name or a notation.
    Text(&'a str),
    /// The policy itself.
    Policy(&'a Policy),
}

impl AsPolicy for str {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Text(self)
    }
}

impl AsPolicy for String {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Text(self)
    }
}

impl AsPolicy for Policy {
    fn as_policy(&self) -> PolicyRef<'_> {
        PolicyRef::Policy(self)
    }
}

impl<T: AsPolicy + ?Sized> AsPolicy for &T {
    fn as_policy(&self) -> PolicyRef<'_> {
        T::as_policy(self)
    }
}

impl Policies {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let known = Self::default();
        known.replace(policies);
        known
    }

    /// Takes these instead of what was there, all at once.
    pub(super) fn replace(&self, policies: &[Policy]) {
        let plans = policies.iter().map(|policy| (policy.name().to_owned(), policy.plan())).collect();
        self.named.store(Arc::new(plans));
    }

    #[inline]
    pub(super) fn find(&self, policy: PolicyRef<'_>) -> Result<Arc<Plan>> {
        match policy {
            PolicyRef::Text(text) => self.named(text),
            PolicyRef::Policy(policy) => Ok(policy.plan()),
        }
    }

    /// The version of a policy that is in force: what outlives a reload must not bring the old one back.
    pub(super) fn current(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        Arc::clone(self.named.load().get(plan.policy.name()).unwrap_or(plan))
    }

    /// How many have a name.
    pub(super) fn count(&self) -> usize {
        self.named.load().len()
    }

    #[inline]
    fn named(&self, text: &str) -> Result<Arc<Plan>> {
        if let Some(plan) = self.named.load().get(text) {
            return Ok(Arc::clone(plan));
        }
        if let Some(plan) = self.notations.read().get(text) {
            return Ok(Arc::clone(plan));
        }
        self.read(text)
    }

    #[cold]
    fn read(&self, text: &str) -> Result<Arc<Plan>> {
        let policy = Policy::parse(text).map_err(|error| {
            // Digits make a notation; without any it was meant to be a name.
            if text.bytes().any(|byte| byte.is_ascii_digit()) {
                return error;
            }
            let mut names: Vec<String> = self.named.load().keys().map(|name| format!("{name:?}")).collect();
            names.sort_unstable();
            let shown: String = text.chars().take(80).collect();
            let known =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Error::new(
                ErrorKind::PolicyUnknown,
                format!("{shown:?} is no policy of this limiter ({known}) and no notation such as \"20/minute\""),
            )
        })?;
        let plan = policy.plan();
        let mut notations = self.notations.write();
        if notations.len() < NOTATIONS {
            notations.insert(text.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }
}
