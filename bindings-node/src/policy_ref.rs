//! The policies of calls.

use tidegate::{Algorithm, AsPolicy, Policy, PolicyRef};

/// A policy that calls name by its index in a list, so that no text crosses with each of them.
#[derive(Clone)]
pub(crate) enum OwnedPolicyRef {
    /// A name or a notation. Each call looks it up, so that a reload takes effect at once.
    Text(String),
    /// A policy that the caller made.
    Policy(Policy),
}

impl AsPolicy for OwnedPolicyRef {
    fn as_policy(&self) -> PolicyRef<'_> {
        match self {
            Self::Text(text) => PolicyRef::Text(text),
            Self::Policy(policy) => PolicyRef::Policy(policy),
        }
    }
}

/// Whether a policy has units that are held and given back.
pub(crate) fn holds(policy: &Policy) -> bool {
    policy.limits().iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
}
