//! The known keys with other numbers than their policy. A call about such a key brings the right numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::key_table::{KeyEntry, KeyTable, KnownKey, TableShard};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::KeyOverride;
use crate::process::fork::PerProcess;
use crate::tables::table_key::TableKeyRef;

/// A key with the plan of its override.
impl KeyEntry for KnownKey {
    fn known(&self) -> &KnownKey {
        self
    }

    /// The store may lose an override at any time. Its next answer shows that.
    fn until(&self) -> u64 {
        u64::MAX
    }
}

/// A bounded table of keys with other numbers.
#[derive(Default)]
pub(crate) struct KnownOverrides {
    table: PerProcess<KeyTable<KnownKey>>,
    /// True if the table ever had a key.
    is_used: AtomicBool,
}

impl KnownOverrides {
    /// True if a call of this policy has to ask for the plan of its key.
    #[inline(always)]
    pub(crate) fn concern(&self, plan: &Plan) -> bool {
        self.is_used.load(Ordering::Relaxed) || plan.policy.options().overrides.is_some()
    }

    /// The plan for a key of a policy, if it is another one.
    ///
    /// # Errors
    /// `policy_invalid` for numbers that the options of the policy forbid by now.
    #[cold]
    pub(crate) fn plan_of(&self, base: &Arc<Plan>, key: &str) -> Result<Option<Arc<Plan>>> {
        let known = self.table.with(KeyTable::default, |table| {
            table.place(base, TableKeyRef::of(key)).get().map(|known| Arc::clone(&known.plan))
        });
        let text = match known {
            Some(plan) if Arc::ptr_eq(Plan::base(&plan), base) => return Ok(Some(plan)),
            // This plan is of an older version of the policy.
            Some(plan) => plan.stored_override().to_owned(),
            None => String::new(),
        };
        self.derive(base, key, &text)
    }

    /// Learns the numbers that the store has for a key, empty if it has none, and returns the plan with them.
    pub(crate) fn learn(&self, base: &Arc<Plan>, key: &str, text: &str) -> Result<Arc<Plan>> {
        Ok(self.derive(base, key, text)?.unwrap_or_else(|| Arc::clone(base)))
    }

    /// Makes the plan of a key, and keeps it.
    fn derive(&self, base: &Arc<Plan>, key: &str, text: &str) -> Result<Option<Arc<Plan>>> {
        let of_policy = || base.policy.options().overrides.as_ref().and_then(|overrides| overrides.get(key)).cloned();
        let own = match text {
            "" => of_policy(),
            text => Some(KeyOverride::parse(text).map_err(|error| unreadable(base, text, &error))?),
        };
        let plan = own.map(|own| Plan::overriding(base, &own, text.to_owned())).transpose()?;
        self.table.with(KeyTable::default, |table| {
            let key = TableKeyRef::of(key);
            let hash = table.hash(base, key);
            let mut shard = table.shard(hash);
            shard.remove_all(hash, |known| known.is_of(base, key));
            if let Some(plan) = &plan {
                let mut known = KnownKey::new(plan, key, hash);
                known.measure(0);
                shard.insert(known, 0);
                self.is_used.store(true, Ordering::Relaxed);
            }
        });
        Ok(plan)
    }

    pub(crate) fn forget_all(&self) {
        self.table.with(KeyTable::default, |table| table.each(TableShard::clear));
    }
}

fn unreadable(base: &Plan, text: &str, error: &Error) -> Error {
    Error::new(
        ErrorKind::StoreRejected,
        format!(
            "a key of the policy {:?} has the override {text:?}, which this version of Tidegate cannot read: {}",
            base.policy.name(),
            error.message()
        ),
    )
}
