//! The policies a limiter knows, by name, and the notations it has read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::plan_cache;
use crate::policy::Policy;

/// Notations kept ready. A program that writes more different ones in place makes them up as it goes; they are read
/// anew each time then.
const NOTATIONS: usize = 10_000;

type Plans = HashMap<String, Arc<Plan>, RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Those the limiter was made with. They are in force until they are replaced, which hardly ever happens, and to
    /// look at them costs no guard.
    first: Plans,
    replaced: AtomicBool,
    newer: ArcSwap<Plans>,
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
        Self { first: plans(policies), ..Self::default() }
    }

    /// Takes these instead of what was there, all at once.
    pub(super) fn replace(&self, policies: &[Policy]) {
        self.newer.store(Arc::new(plans(policies)));
        self.replaced.store(true, Ordering::Release);
    }

    /// Looks at the policies in force.
    #[inline]
    fn look<T>(&self, look: impl FnOnce(&Plans) -> T) -> T {
        if self.replaced.load(Ordering::Acquire) { look(&self.newer.load()) } else { look(&self.first) }
    }

    #[inline]
    pub(super) fn find(&self, policy: PolicyRef<'_>) -> Result<Arc<Plan>> {
        match policy {
            PolicyRef::Text(text) => self.named(text),
            PolicyRef::Policy(policy) => Ok(plan_cache::plan_of(policy)),
        }
    }

    /// The version of a policy that is in force: what outlives a reload must not bring the old one back.
    pub(super) fn current(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        self.look(|plans| Arc::clone(plans.get(plan.policy.name()).unwrap_or(plan)))
    }

    /// How many have a name.
    pub(super) fn count(&self) -> usize {
        self.look(Plans::len)
    }

    #[inline]
    fn named(&self, text: &str) -> Result<Arc<Plan>> {
        if let Some(plan) = self.look(|plans| plans.get(text).map(plan_cache::handle)) {
            return Ok(plan);
        }
        if let Some(plan) = self.notations.read().get(text) {
            return Ok(plan_cache::handle(plan));
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
            let mut names: Vec<String> = self.look(|plans| plans.keys().map(|name| format!("{name:?}")).collect());
            names.sort_unstable();
            let shown: String = text.chars().take(80).collect();
            let known =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Error::new(
                ErrorKind::PolicyUnknown,
                format!("{shown:?} is no policy of this limiter ({known}) and no notation such as \"20/minute\""),
            )
        })?;
        let plan = plan_cache::plan_of(&policy);
        let mut notations = self.notations.write();
        if notations.len() < NOTATIONS {
            notations.insert(text.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }
}

fn plans(policies: &[Policy]) -> Plans {
    policies.iter().map(|policy| (policy.name().to_owned(), plan_cache::plan_of(policy))).collect()
}
