//! Takes a changed policy file, as a whole or not at all.

use super::LimiterCore;
use super::asynchronous::AsyncLimiter;
use super::blocking::Limiter;
use super::policy_ref::{AsPolicy, PolicyRef};
use super::policy_uses::PolicyUse;
use crate::error::{Error, Result};
use crate::policy::lint;

impl LimiterCore {
    pub(super) fn reload(&self) -> Result<()> {
        self.open()?;
        let source = self
            .source
            .as_ref()
            .ok_or_else(|| Error::config("this limiter was not made from a file: there is nothing to reload"))?;
        // The last of several reloads is the last that reads.
        let _reloading = self.reloading.lock();
        let file = source.reread(self.uses_store_of_file)?;
        source.refuse_in_code(&file, self.policies.in_code())?;
        let replaced = self.policies.replace(file.policies()).map_err(|gone| {
            source.refusal(&format!(
                "a policy is gone that is in use: {gone}. Keep it in the file, or restart without what uses it"
            ))
        });
        if replaced.is_ok() {
            self.policies.each(|plan| self.answers.decisions.begin(plan));
            self.log.file_warnings(&lint(&file));
        }
        replaced
    }

    fn use_policy(&self, policy: PolicyRef<'_>, by: &str) -> Result<PolicyUse> {
        self.open()?;
        self.policies.register_use(policy, by)
    }
}

impl Limiter {
    /// Registers that something uses a policy: while the `PolicyUse` exists, [`Limiter::reload`] refuses a file without a
    /// policy of that name, and names `by` in its error. A notation or a [`Policy`](crate::Policy) needs no file: then the
    /// use says nothing.
    ///
    /// # Errors
    /// As [`Limiter::policy`].
    pub fn use_policy(&self, policy: impl AsPolicy, by: &str) -> Result<PolicyUse> {
        self.core.use_policy(policy.as_policy(), by)
    }

    /// A number that is another one after each reload: what was derived from a policy before is derived anew then.
    #[must_use]
    pub fn policy_generation(&self) -> u64 {
        self.core.policies.generation()
    }
}

impl AsyncLimiter {
    /// As [`Limiter::use_policy`].
    ///
    /// # Errors
    /// As [`AsyncLimiter::policy`].
    pub fn use_policy(&self, policy: impl AsPolicy, by: &str) -> Result<PolicyUse> {
        self.core.use_policy(policy.as_policy(), by)
    }

    /// As [`Limiter::policy_generation`].
    #[must_use]
    pub fn policy_generation(&self) -> u64 {
        self.core.policies.generation()
    }
}
