//! The keys that have other numbers than their policy. They stand beside the usages, so that nothing pushes them out.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::error::{Error, Result};
use crate::plan::{MAX_OVERRIDDEN_KEYS, Plan};
use crate::store::request::{OverrideChange, StoredOverride};

/// The numbers of a key, and when they end; 0 is never.
struct OwnLimits {
    text: String,
    ends: u64,
}

impl OwnLimits {
    const fn is_in_force(&self, now: u64) -> bool {
        self.ends == 0 || self.ends > now
    }
}

/// By the identities of policies and by keys.
#[derive(Default)]
pub(super) struct OwnLimitsTable {
    is_used: AtomicBool,
    keys: RwLock<HashMap<u128, BTreeMap<String, OwnLimits>>>,
}

impl OwnLimitsTable {
    /// The numbers that a key has where a call has brought others; empty for those of its policy.
    #[inline]
    pub(super) fn other_than(&self, plan: &Plan, key: &str, now: u64) -> Option<String> {
        if !self.is_used.load(Ordering::Relaxed) && plan.stored_override().is_empty() {
            return None;
        }
        self.compare(plan, key, now)
    }

    #[cold]
    fn compare(&self, plan: &Plan, key: &str, now: u64) -> Option<String> {
        let keys = self.keys.read();
        let own = keys.get(&plan.identity).and_then(|keys| keys.get(key)).filter(|own| own.is_in_force(now));
        let text = own.map_or("", |own| &own.text);
        (text != plan.stored_override()).then(|| text.to_owned())
    }

    /// # Errors
    /// `config_invalid` for more keys than a policy may have.
    pub(super) fn change(&self, plan: &Plan, change: &OverrideChange, now: u64) -> Result<()> {
        let mut all = self.keys.write();
        let keys = all.entry(plan.identity).or_default();
        if change.text.is_empty() {
            keys.remove(&change.key);
            if keys.is_empty() {
                all.remove(&plan.identity);
            }
            return Ok(());
        }
        if keys.len() >= MAX_OVERRIDDEN_KEYS && !keys.contains_key(&change.key) {
            keys.retain(|_, own| own.is_in_force(now));
            if keys.len() >= MAX_OVERRIDDEN_KEYS {
                return Err(Error::too_many_overrides(plan.policy.name(), MAX_OVERRIDDEN_KEYS));
            }
        }
        let ends = if change.ttl == 0 { 0 } else { now.saturating_add(change.ttl) };
        keys.insert(change.key.clone(), OwnLimits { text: change.text.clone(), ends });
        self.is_used.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn of(&self, plan: &Plan, now: u64) -> Vec<StoredOverride> {
        let keys = self.keys.read();
        let own = keys.get(&plan.identity).into_iter().flatten().filter(|(_, own)| own.is_in_force(now));
        own.map(|(key, own)| StoredOverride { key: key.clone(), text: own.text.clone(), ends: own.ends }).collect()
    }

    pub(super) fn clear(&self) {
        self.keys.write().clear();
    }
}
