//! Takes a changed policy file, as a whole or not at all.

use super::LimiterCore;
use super::policy_ref::PolicyRef;
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

    pub(super) fn use_policy(&self, policy: PolicyRef<'_>, by: &str) -> Result<PolicyUse> {
        self.open()?;
        self.policies.register_use(policy, by)
    }
}
