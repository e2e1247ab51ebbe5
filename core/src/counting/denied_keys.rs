//! The keys that a limiter denied last, for `tidegate top`. A limiter keeps them only if the user of its process asked
//! for that, because keys may be addresses or tokens.

use std::collections::HashMap;
use std::sync::Arc;

use crate::process::lock::Mutex;
use compact_str::CompactString;

use crate::process::fork::PerProcess;

/// The most keys that are kept. Beyond that, the key with the oldest last denial goes.
pub(crate) const MAX_DENIED_KEYS: usize = 256;
/// The longest names of a policy and a key together, in bytes. Longer ones are counted and not kept.
pub(crate) const MAX_NAMES: usize = 512;

/// How often a key was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeniedKey {
    pub(crate) policy: CompactString,
    pub(crate) key: CompactString,
    pub(crate) denials: u64,
    /// The number of its last denial among all denials of the limiter.
    last: u64,
}

/// The keys that were denied, with their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeniedKeyTable {
    keys: HashMap<(CompactString, CompactString), DeniedKey>,
    denials: u64,
    /// Denials of keys that are too long to be kept.
    pub(crate) of_long_keys: u64,
}

/// The keys that were denied last, bounded in number.
pub(crate) struct DeniedKeys {
    /// A child begins anew, because a thread of its parent may have held the lock during the fork.
    table: PerProcess<Mutex<DeniedKeyTable>>,
    /// Called with the first denial of each process.
    begin: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for DeniedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeniedKeys").finish_non_exhaustive()
    }
}

impl DeniedKeys {
    pub(crate) fn new(begin: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { table: PerProcess::new(), begin }
    }

    #[cold]
    pub(crate) fn note(&self, policy: &str, key: &str) {
        let make = || {
            (self.begin)();
            Mutex::default()
        };
        self.table.with(make, |table| table.lock().note(policy, key));
    }

    /// The denials that this process has noted.
    pub(crate) fn read(&self) -> DeniedKeyTable {
        self.table.get().map(|table| table.lock().clone()).unwrap_or_default()
    }
}

impl DeniedKeyTable {
    fn note(&mut self, policy: &str, key: &str) {
        self.denials += 1;
        if policy.len() + key.len() > MAX_NAMES {
            self.of_long_keys += 1;
            return;
        }
        let names = (CompactString::from(policy), CompactString::from(key));
        if self.keys.len() >= MAX_DENIED_KEYS && !self.keys.contains_key(&names) {
            let oldest = self.keys.iter().min_by_key(|(_, denied)| denied.last).map(|(names, _)| names.clone());
            oldest.and_then(|names| self.keys.remove(&names));
        }
        let (policy, key) = names.clone();
        let denied = self.keys.entry(names).or_insert(DeniedKey { policy, key, denials: 0, last: 0 });
        (denied.denials, denied.last) = (denied.denials + 1, self.denials);
    }

    /// The keys, the one that was denied last first.
    pub(crate) fn newest_first(self) -> Vec<DeniedKey> {
        let mut keys: Vec<DeniedKey> = self.keys.into_values().collect();
        keys.sort_unstable_by_key(|denied| std::cmp::Reverse(denied.last));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_and_bounded() {
        let mut table = DeniedKeyTable::default();
        for number in 0..3 * MAX_DENIED_KEYS {
            table.note("login", &format!("key {number}"));
            table.note("login", "hot");
        }
        table.note("login", &"k".repeat(MAX_NAMES));
        assert_eq!(table.of_long_keys, 1);
        let keys = table.newest_first();
        assert_eq!(keys.len(), MAX_DENIED_KEYS);
        assert_eq!((keys[0].key.as_str(), keys[0].denials), ("hot", 3 * MAX_DENIED_KEYS as u64));
        assert_eq!(keys[1].key, format!("key {}", 3 * MAX_DENIED_KEYS - 1));
    }
}
