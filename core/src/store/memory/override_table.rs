//! The overrides of keys. They stand beside the usages, so that nothing pushes them out.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::lock::InheritedRwLock;

use crate::error::{Error, Result};
use crate::plan::{MAX_OVERRIDDEN_KEYS, Plan};
use crate::store::request::{OverrideChange, StoredOverride};

/// The bytes of a key without its names and its text, and of a policy without its keys: about as much as is allocated.
const BYTES_OF_KEY: usize = 136;
const BYTES_OF_POLICY: usize = 768;
/// Growth is measured against at least these bytes, so that a small table is not swept often.
const FEW_BYTES: usize = 64 << 10;

/// Overrides, by the identity of the policy and by key.
#[derive(Default, Clone)]
struct KeptOverrides {
    policies: HashMap<u128, BTreeMap<String, StoredOverride>>,
    bytes: usize,
    /// The bytes after the last sweep.
    swept_bytes: usize,
}

impl KeptOverrides {
    fn remove(&mut self, policy: u128, key: &str) -> Option<StoredOverride> {
        let own = self.remove_numbers(policy, key)?;
        if self.policies.get(&policy).is_some_and(BTreeMap::is_empty) {
            self.policies.remove(&policy);
            self.bytes -= BYTES_OF_POLICY;
        }
        Some(own)
    }

    /// The bytes that a change of a key's numbers would add.
    fn added_bytes(&self, policy: u128, change: &OverrideChange) -> usize {
        let added = bytes_of(&change.key, &change.text);
        match self.policies.get(&policy) {
            None => added + BYTES_OF_POLICY,
            Some(keys) => match keys.get(&change.key) {
                Some(own) => added.saturating_sub(bytes_of(&change.key, &own.text)),
                None => added,
            },
        }
    }

    fn insert(&mut self, policy: u128, own: StoredOverride) {
        self.remove_numbers(policy, &own.key);
        self.bytes += bytes_of(&own.key, &own.text);
        let bytes = &mut self.bytes;
        let keys = self.policies.entry(policy).or_insert_with(|| {
            *bytes += BYTES_OF_POLICY;
            BTreeMap::new()
        });
        keys.insert(own.key.clone(), own);
    }

    /// As [`Self::remove`], for a key that gets other numbers.
    fn remove_numbers(&mut self, policy: u128, key: &str) -> Option<StoredOverride> {
        let own = self.policies.get_mut(&policy)?.remove(key)?;
        self.bytes -= bytes_of(key, &own.text);
        Some(own)
    }

    /// Removes the overrides that have ended.
    fn sweep(&mut self, now: u64) {
        self.policies.retain(|_, keys| {
            keys.retain(|_, own| own.last() > now);
            !keys.is_empty()
        });
        let of_keys = |keys: &BTreeMap<String, StoredOverride>| -> usize {
            keys.iter().map(|(key, own)| bytes_of(key, &own.text)).sum::<usize>() + BYTES_OF_POLICY
        };
        self.bytes = self.policies.values().map(of_keys).sum();
        self.swept_bytes = self.bytes;
    }
}

fn bytes_of(key: &str, text: &str) -> usize {
    2 * key.len() + text.len() + BYTES_OF_KEY
}

/// The numbers of keys, bounded in bytes.
pub(super) struct OverrideTable {
    is_used: AtomicBool,
    kept: InheritedRwLock<KeptOverrides>,
    max_bytes: usize,
}

impl OverrideTable {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { is_used: AtomicBool::new(false), kept: InheritedRwLock::default(), max_bytes }
    }

    /// True if a call may have brought other numbers than its key has.
    #[inline(always)]
    pub(super) fn concern(&self, plan: &Plan) -> bool {
        self.is_used.load(Ordering::Relaxed) || !plan.stored_override().is_empty()
    }

    /// The numbers of a key, if the call has brought others. Empty for those of its policy.
    pub(super) fn other_than(&self, plan: &Plan, key: &str, now: u64) -> Option<String> {
        let kept = self.kept.read();
        let own = kept.policies.get(&plan.identity).and_then(|keys| keys.get(key)).filter(|own| own.last() > now);
        let text = own.map_or("", |own| &own.text);
        (text != plan.stored_override()).then(|| text.to_owned())
    }

    /// Returns true if there was something to change.
    ///
    /// # Errors
    /// `config_invalid` for more keys than a policy may have, and for more bytes than the store may take.
    pub(super) fn change(&self, plan: &Plan, change: &OverrideChange, now: u64) -> Result<bool> {
        let (mut kept, policy) = (self.kept.write(), plan.identity);
        if change.text.is_empty() {
            return Ok(kept.remove(policy, &change.key).is_some_and(|own| own.last() > now));
        }
        let is_full = |kept: &KeptOverrides| {
            let keys = kept.policies.get(&policy);
            keys.is_some_and(|keys| keys.len() >= MAX_OVERRIDDEN_KEYS && !keys.contains_key(&change.key))
        };
        let is_large = |kept: &KeptOverrides| kept.bytes + kept.added_bytes(policy, change) > self.max_bytes;
        if is_full(&kept) || is_large(&kept) || kept.bytes > 2 * kept.swept_bytes.max(FEW_BYTES) {
            kept.sweep(now);
        }
        if is_full(&kept) {
            return Err(Error::too_many_overrides(plan.policy.name(), MAX_OVERRIDDEN_KEYS));
        }
        if is_large(&kept) {
            return Err(Error::config(format!(
                "the overrides of the memory store take {} bytes, and max_bytes is {}: remove some, or raise max_bytes, as in \
                 memory://?max_bytes=4GB",
                kept.bytes, self.max_bytes
            )));
        }
        kept.insert(policy, change.stored(now));
        self.is_used.store(true, Ordering::Relaxed);
        Ok(true)
    }

    pub(super) fn of(&self, plan: &Plan, now: u64) -> Vec<StoredOverride> {
        let kept = self.kept.read();
        let own = kept.policies.get(&plan.identity).into_iter().flatten().filter(|(_, own)| own.last() > now);
        own.map(|(_, own)| own.clone()).collect()
    }

    pub(super) fn clear(&self) {
        *self.kept.write() = KeptOverrides::default();
    }
}
