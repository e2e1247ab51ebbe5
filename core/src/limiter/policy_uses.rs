//! The uses of policies by their names, so that a reload does not remove the policies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::process::lock::InheritedMutex;

use crate::error::Result;

/// The most users that an error names.
const MAX_SHOWN: usize = 8;

/// A use of a policy by its name.
#[derive(Debug)]
struct NamedUse {
    policy: String,
    by: String,
}

#[derive(Debug, Default)]
struct Uses {
    by_number: BTreeMap<u64, NamedUse>,
    next: u64,
}

/// The uses of a limiter's policies that have not ended.
#[derive(Debug, Default)]
pub(super) struct PolicyUses {
    uses: Arc<InheritedMutex<Uses>>,
}

impl PolicyUses {
    /// Registers a use, if `name` finds a name to register. No reload happens meanwhile.
    pub(super) fn register(&self, by: &str, name: impl FnOnce() -> Result<Option<String>>) -> Result<PolicyUse> {
        let mut uses = self.uses.lock();
        let Some(policy) = name()? else { return Ok(PolicyUse { registered: None }) };
        let number = uses.next;
        uses.next += 1;
        uses.by_number.insert(number, NamedUse { policy, by: by.to_owned() });
        Ok(PolicyUse { registered: Some((Arc::clone(&self.uses), number)) })
    }

    /// Replaces the policies, unless one that is in use is not among the new ones. Then the error names it.
    pub(super) fn replace(
        &self,
        is_known: impl Fn(&str) -> bool,
        replace: impl FnOnce(),
    ) -> std::result::Result<(), String> {
        let uses = self.uses.lock();
        let mut gone: Vec<_> = uses.by_number.values().filter(|used| !is_known(&used.policy)).collect();
        if gone.is_empty() {
            replace();
            return Ok(());
        }
        gone.sort_unstable_by_key(|used| (&used.policy, &used.by));
        gone.dedup_by_key(|used| (&used.policy, &used.by));
        let shown = gone.iter().take(MAX_SHOWN).map(|used| format!("{:?}, used by {}", used.policy, used.by));
        let more =
            if gone.len() > MAX_SHOWN { format!("; and {} more", gone.len() - MAX_SHOWN) } else { String::new() };
        Err(format!("{}{more}", shown.collect::<Vec<_>>().join("; ")))
    }
}

/// Marks a policy as used. While it exists, [`Limiter::reload`](crate::Limiter::reload) refuses a file without the policy.
#[must_use = "a reload may remove the policy once this is dropped"]
pub struct PolicyUse {
    registered: Option<(Arc<InheritedMutex<Uses>>, u64)>,
}

impl fmt::Debug for PolicyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyUse").field("named", &self.registered.is_some()).finish()
    }
}

impl Drop for PolicyUse {
    fn drop(&mut self) {
        if let Some((uses, number)) = &self.registered {
            uses.lock().by_number.remove(number);
        }
    }
}
