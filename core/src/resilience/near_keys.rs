//! The keys that were near a limit, so that a process hears of each only once in its window.

use std::sync::Arc;

use super::key_table::{KeyEntry, KeyTable, KnownKey};
use crate::plan::Plan;
use crate::process::fork::PerProcess;
use crate::tables::table_key::TableKeyRef;

struct NearKey {
    known: KnownKey,
    until: u64,
}

impl KeyEntry for NearKey {
    fn known(&self) -> &KnownKey {
        &self.known
    }

    fn until(&self) -> u64 {
        self.until
    }
}

/// A table of keys that is bounded in bytes.
#[derive(Default)]
pub(crate) struct NearKeys(PerProcess<KeyTable<NearKey>>);

impl NearKeys {
    /// True if a key is noted for the first time in a window that ends at `until`. A table that is full of windows notes no more.
    pub(crate) fn note(&self, plan: &Arc<Plan>, key: &str, now: u64, until: u64) -> bool {
        self.0.with(KeyTable::default, |table| {
            let key = TableKeyRef::of(key);
            let mut place = table.place(plan, key);
            if place.get().is_some_and(|near| near.until > now) {
                return false;
            }
            if let Some(at) = place.index {
                place.shard.remove(at);
            }
            let mut known = KnownKey::new(plan, key, place.hash);
            known.measure(0);
            place.shard.insert_if_room(NearKey { known, until }, now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;

    #[test]
    fn each_key_is_noted_once_in_its_window_also_in_a_flood() {
        let (keys, plan) = (NearKeys::default(), plan_of(&Policy::parse("5/minute").expect("a policy")));
        let flood = |now, until| (0..200_000).filter(|key| keys.note(&plan, &format!("key {key}"), now, until)).count();
        let noted = flood(0, 100);
        assert!((30_000..=65_536).contains(&noted), "{noted} keys");
        assert_eq!(flood(50, 100), 0, "the table is full of windows");
        assert!(flood(100, 200) > 30_000, "they have ended");
    }
}
