//! The known keys with other numbers than their policy. A call about such a key brings the right numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::key_table::{KeyEntry, KeyTable, KnownKey, TableShard};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Plan;
use crate::policy::{KeyOverride, Overrides};
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

type Table = PerProcess<KeyTable<KnownKey>>;

/// Bounded tables of keys and of networks with other numbers.
#[derive(Default)]
pub(crate) struct KnownOverrides {
    keys: Table,
    /// The plans of networks, which all their addresses share.
    networks: Table,
    /// True if a key ever had a live override.
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
        let text = match find(&self.keys, base, key) {
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
        let of_policy = base.policy.options().overrides.as_ref();
        let own = match text {
            "" => of_policy.and_then(|overrides| overrides.get(key)).cloned(),
            text => Some(KeyOverride::parse(text).map_err(|error| unreadable(base, text, &error))?),
        };
        let plan = own.map(|own| Plan::overriding(base, &own, text.to_owned())).transpose()?;
        replace(&self.keys, base, key, plan.as_ref());
        if !text.is_empty() {
            self.is_used.store(true, Ordering::Relaxed);
        }
        match of_policy.filter(|_| plan.is_none()) {
            Some(overrides) => self.of_network(base, overrides, key),
            None => Ok(plan),
        }
    }

    /// The plan of the network of a key. Its text in the store is empty, as that of each override of a policy.
    fn of_network(&self, base: &Arc<Plan>, overrides: &Overrides, key: &str) -> Result<Option<Arc<Plan>>> {
        let Some((network, own)) = overrides.network_of(key).and_then(|key| Some((key, overrides.get(key)?))) else {
            return Ok(None);
        };
        let known = find(&self.networks, base, network).filter(|plan| Arc::ptr_eq(Plan::base(plan), base));
        if known.is_some() {
            return Ok(known);
        }
        let plan = Plan::overriding(base, own, String::new())?;
        replace(&self.networks, base, network, Some(&plan));
        Ok(Some(plan))
    }

    pub(crate) fn forget_all(&self) {
        self.keys.with(KeyTable::default, |table| table.each(TableShard::clear));
    }
}

fn find(table: &Table, base: &Plan, key: &str) -> Option<Arc<Plan>> {
    table.with(KeyTable::default, |table| {
        table.place(base, TableKeyRef::of(key)).get().map(|known| Arc::clone(&known.plan))
    })
}

fn replace(table: &Table, base: &Plan, key: &str, plan: Option<&Arc<Plan>>) {
    table.with(KeyTable::default, |table| {
        let key = TableKeyRef::of(key);
        let hash = table.hash(base, key);
        let mut shard = table.shard(hash);
        shard.remove_all(hash, |known| known.is_of(base, key));
        if let Some(plan) = plan {
            let mut known = KnownKey::new(plan, key, hash);
            known.measure(0);
            shard.insert(known, 0);
        }
    });
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
