//! A store of an application in memory, whole or with one defect.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::store::{Change, KeyValueStore, StoreAnswer, StoreFailure, Swapped, Value};

type Values = HashMap<Vec<u8>, (Value, SystemTime)>;

/// Keeps everything that a store promises, unless it has a defect: a name in `tests/stores/defects.json`.
#[derive(Debug)]
pub struct Table {
    defect: String,
    made: SystemTime,
    values: Mutex<(u64, Values)>,
}

impl Default for Table {
    fn default() -> Self {
        Self::with("")
    }
}

impl Table {
    /// A store with a defect.
    #[must_use]
    pub fn with(defect: &str) -> Self {
        Self { defect: defect.to_owned(), made: SystemTime::now(), values: Mutex::default() }
    }

    fn has(&self, defect: &str) -> bool {
        self.defect == defect
    }

    fn locked(&self) -> MutexGuard<'_, (u64, Values)> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Option<SystemTime> {
        let now = if self.has("has a clock that stands still") { self.made } else { SystemTime::now() };
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(UNIX_EPOCH + if self.has("returns milliseconds") { since * 1_000 } else { since })
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        if self.has("cuts keys at a zero") {
            return key.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        }
        if self.has("has keys without case") { key.to_ascii_lowercase() } else { key.to_vec() }
    }

    fn value(&self, values: &Values, key: &[u8]) -> Option<Value> {
        let (value, expires_at) = values.get(&self.key(key))?;
        let since = expires_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = if self.has("takes expires_at for milliseconds") {
            since / 1_000
        } else if self.has("drops a value at its second") {
            Duration::from_secs(since.as_secs())
        } else {
            // A store may drop a value later.
            return Some(value.clone());
        };
        (SystemTime::now() < UNIX_EPOCH + until).then(|| value.clone())
    }

    fn swap(&self, count: &mut u64, values: &mut Values, change: &Change, found: Option<Value>) -> Swapped {
        let version = found.as_ref().map(|value| value.version.clone());
        if self.has("does not replace a version") && version.is_some() {
            return Swapped::Lost(found);
        }
        if version != change.version && !self.has("ignores the version") {
            let nothing = found.is_none() && change.data.is_none();
            if self.has("says done for the deletion of nothing") && nothing {
                return Swapped::Done;
            }
            return Swapped::Lost(found.filter(|_| !self.has("says none for a lost swap")));
        }
        *count += 1;
        let Some(data) = &change.data else {
            values.remove(&self.key(&change.key));
            return Swapped::Done;
        };
        let version = match version {
            old if self.has("counts versions anew after a deletion") => vec![old.map_or(1, |old| old[0] + 1)],
            Some(old) if self.has("keeps the version of a swap") => old,
            _ => count.to_le_bytes().to_vec(),
        };
        let data = if self.has("keeps text") {
            String::from_utf8_lossy(data).into_owned().into_bytes()
        } else if self.has("cuts large values") {
            data[..data.len().min(65_536)].to_vec()
        } else {
            data.clone()
        };
        values.insert(self.key(&change.key), (Value { version, data }, change.expires_at));
        Swapped::Done
    }
}

impl KeyValueStore for Table {
    async fn read(&self, keys: &[&[u8]], _: Duration) -> StoreAnswer<Option<Value>> {
        tokio::task::yield_now().await;
        let (_, values) = &*self.locked();
        let mut keys = keys.to_vec();
        if self.has("sorts the values") {
            keys.sort_unstable();
        }
        let found = keys.iter().map(|key| self.value(values, key));
        let found = found.filter(|value| value.is_some() || !self.has("leaves out missing keys"));
        Ok((self.now(), found.collect()))
    }

    async fn compare_and_swap(&self, changes: &[Change], _: Duration) -> StoreAnswer<Swapped> {
        let found: Vec<Option<Value>> = {
            let (_, values) = &*self.locked();
            changes.iter().map(|change| self.value(values, &change.key)).collect()
        };
        if self.has("compares and writes in two steps") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (count, values) = &mut *self.locked();
        let standing: Vec<Option<Value>> = changes.iter().map(|change| self.value(values, &change.key)).collect();
        let is_lost = |(change, found): (&Change, &Option<Value>)| {
            change.version.as_ref() != found.as_ref().map(|value| &value.version)
        };
        if self.defect.is_empty() && changes.iter().zip(&standing).any(is_lost) {
            return Ok((self.now(), standing.into_iter().map(Swapped::Lost).collect()));
        }
        let mut results = Vec::new();
        for (change, before) in changes.iter().zip(found) {
            let current = self.value(values, &change.key);
            let found = if self.has("compares and writes in two steps") { before } else { current };
            results.push(if self.has("writes the first change alone") && !results.is_empty() {
                Swapped::Lost(found)
            } else {
                self.swap(count, values, change, found)
            });
        }
        if self.has("sorts the results") {
            let mut sorted: Vec<_> = changes.iter().map(|change| &change.key).zip(results).collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            results = sorted.into_iter().map(|(_, result)| result).collect();
        }
        Ok((self.now(), results))
    }

    async fn scan(&self, prefix: &[u8], _: Duration) -> Result<Vec<Vec<u8>>, StoreFailure> {
        let begin = if self.has("scans too much") { &prefix[..6] } else { prefix };
        let (_, values) = &*self.locked();
        let keys = values.keys().filter(|key| key.starts_with(begin)).cloned();
        Ok(keys.skip(usize::from(self.has("scans too little"))).collect())
    }

    fn scans(&self) -> bool {
        true
    }

    fn all_or_none(&self) -> bool {
        ["", "promises all or none"].contains(&&*self.defect)
    }
}
