//! A file of a store, for programs that look at all of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Machine;
use super::file::{no_folder, shown};
use super::record::{Record, RecordName};
use super::shard::{COUNTS, Look};
use crate::error::{Error, Result};
use crate::plan::plan_cache::plan_of;
use crate::policy::Policy;
use crate::process::log::Log;
use crate::store::key_names::KeyNames;
use crate::store::url::StoreUrl;

/// A file of a store, for programs that look at all of it. Only an examination takes its locks.
pub struct StoredFile {
    machine: Machine,
    /// The shard that is read next.
    next: usize,
}

impl StoredFile {
    /// Opens a file that exists, by the URL of its store.
    ///
    /// # Errors
    /// Those of the file, as for a limiter.
    pub fn open(url: &str, names: &KeyNames, timeout: Duration) -> Result<Self> {
        let StoreUrl::Machine(place) = StoreUrl::parse(url)? else {
            return Err(Error::config("only a store of file:// is a file"));
        };
        if !place.path.exists() {
            let has_folder = place.path.parent().is_some_and(Path::is_dir);
            let why =
                if has_folder { "the first process that uses the store makes it" } else { &no_folder(&place.path) };
            return Err(Error::config(format!("{} does not exist: {why}", shown(&place.path))));
        }
        let machine = Machine::open(&place, names, timeout, &Arc::default(), &Log::new(None))?;
        Ok(Self { machine, next: 0 })
    }

    /// Reads the whole file, and returns how many keys it has.
    ///
    /// # Errors
    /// `store_rejected` for a part that is not whole.
    pub fn examine(&self) -> Result<usize> {
        let (machine, mut keys) = (&self.machine, 0);
        machine.each_shard(
            || machine.deadline(),
            |locked| {
                keys += locked.examine()?;
                Ok(())
            },
        )?;
        Ok(keys)
    }

    /// Returns how many keys it has, as far as that is known.
    #[must_use]
    pub fn keys(&self) -> u64 {
        let shards = (0..self.machine.file.geometry.shards).map(|number| self.machine.shard(number).head(COUNTS));
        shards.map(|counts| counts.map_or(0, |(keys, _)| keys)).sum()
    }

    /// Its time, in microseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.machine.now(None).now
    }

    /// The name of a policy's key in the file.
    #[must_use]
    pub fn name(&self, policy: &Policy, key: &str) -> Vec<u8> {
        bytes_of(self.machine.names.of(&plan_of(policy), key))
    }

    /// Visits keys by their names and values, and goes on where the last call ended. It reads whole parts of the file
    /// until it has seen `most` keys, or all parts. Returns how many keys there were, of all prefixes.
    ///
    /// # Errors
    /// `store_rejected` for a part that is damaged.
    pub fn read(&mut self, most: usize, mut visit: impl FnMut(&[u8], &[u8])) -> Result<usize> {
        let (machine, mut seen) = (&self.machine, 0);
        for _ in 0..machine.file.geometry.shards {
            machine.each_record(self.next, |record| {
                seen += 1;
                if machine.names.has(record.name) {
                    visit(&bytes_of(record.name), record.parts().0);
                }
            })?;
            self.next = (self.next + 1) % machine.file.geometry.shards;
            if seen >= most {
                break;
            }
        }
        Ok(seen)
    }

    /// The value of a key, by its name. `None` if it has none now.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<Vec<u8>> {
        let (first, second) = name.split_first_chunk()?;
        let name = [*first, *second.first_chunk()?].map(u64::from_le_bytes);
        let (shard, bucket) = self.machine.file.geometry.place(name);
        let mut record = Record::default();
        match self.machine.shard(shard).look(bucket, name, &mut record) {
            Ok(Some(Look { found: true, .. })) => Some(record.parts().0.to_vec()),
            _ => None,
        }
    }
}

fn bytes_of(name: RecordName) -> Vec<u8> {
    name.map(u64::to_le_bytes).concat()
}
