//! A policy of a limiter, for the layers of HTTP.

use std::ops::Deref;
use std::sync::Arc;

use super::operations::{CheckOptions, operation};
use super::{AsPolicy, AsyncLimiter};
use crate::error::Result;
use crate::plan::Plan;
use crate::policy::Policy;

/// A policy as its limiter has it now, not copied.
#[derive(Clone)]
pub(crate) struct PolicyInForce(Arc<Plan>);

impl Deref for PolicyInForce {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0.policy
    }
}

impl PolicyInForce {
    /// # Errors
    /// Those of every call with these options.
    pub(crate) fn check_options(&self, options: &CheckOptions) -> Result<()> {
        operation(options, &self.0).map(drop)
    }
}

impl AsyncLimiter {
    /// The policy of a call, without the override of its key.
    ///
    /// # Errors
    /// As a call.
    pub(crate) fn find_policy(&self, policy: &impl AsPolicy, key: &str) -> Result<PolicyInForce> {
        self.core.plan(policy, key).map(PolicyInForce)
    }
}
