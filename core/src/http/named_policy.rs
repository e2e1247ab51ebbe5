//! A policy that an option of a layer names.

use std::borrow::Cow;

use crate::limiter::{AsPolicy, PolicyRef};
use crate::policy::Policy;

/// A policy as the user of a layer gives it: a name or a notation, or the policy itself.
#[derive(Debug, Clone)]
pub(super) enum NamedPolicy {
    Text(Cow<'static, str>),
    Policy(Box<Policy>),
}

impl NamedPolicy {
    pub(super) fn of(policy: &(impl AsPolicy + ?Sized)) -> Self {
        match policy.as_policy() {
            PolicyRef::Text(text) => Self::Text(Cow::Owned(text.to_owned())),
            PolicyRef::Policy(policy) => Self::Policy(Box::new(policy.clone())),
        }
    }
}

impl AsPolicy for NamedPolicy {
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}
