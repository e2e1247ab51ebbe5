//! Several stores with a share of the keys each, by rendezvous hashing: a key belongs to the store with the highest score
//! for it. So a store that is added takes its share from all others, and no other key moves.

use std::sync::Arc;
use std::time::Duration;

use super::digest::{self, Digest};
use super::partitioned_store::PartitionedStore;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::layer_states::LayerStates;
use crate::store::request::Entry;
use crate::store::url::without_secrets;

/// Assigns each key to one of several stores.
pub(crate) struct Shards {
    stores: Arc<[Arc<dyn Store>]>,
    /// The digest of each store's name.
    names: Vec<Digest>,
    timeout: Duration,
}

impl Shards {
    /// Stores and their URLs. The options and credentials of a URL do not change which keys its store has. `timeout` is that
    /// of a call.
    ///
    /// # Errors
    /// `config_invalid` for a store that is given twice.
    pub(crate) fn new(stores: Vec<(Arc<dyn Store>, String)>, timeout: Duration) -> Result<Self> {
        let mut names = Vec::with_capacity(stores.len());
        for (_, url) in &stores {
            let name = digest::of(&[name(url).as_bytes()]);
            if names.contains(&name) {
                let shown = without_secrets(url);
                return Err(Error::config(format!("the list of stores has {shown} twice: give each once")));
            }
            names.push(name);
        }
        Ok(Self { stores: stores.into_iter().map(|(store, _)| store).collect(), names, timeout })
    }
}

impl PartitionedStore for Shards {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]> {
        &self.stores
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn asked(states: &mut LayerStates) -> &mut u32 {
        &mut states.shard
    }

    fn store_of(&self, entry: &Entry<'_>) -> usize {
        highest(&self.names, digest::of(&[&entry.plan.identity.to_le_bytes(), entry.key.as_bytes()]))
    }
}

/// The number of the store with the highest score for a key.
fn highest(names: &[Digest], key: Digest) -> usize {
    let score = |name: &Digest| digest::mixed(name ^ key);
    names.iter().enumerate().max_by_key(|(_, name)| score(name)).map_or(0, |(index, _)| index)
}

/// The name of a store: its servers and its database, in one spelling.
fn name(url: &str) -> String {
    let shown = without_secrets(url);
    let (scheme, rest) = shown.split_once("://").unwrap_or(("", &shown));
    if scheme.contains("unix") {
        // In the URL of a socket the database is an option.
        let options = url.split_once('?').map_or("", |(_, options)| options);
        let database = form_urlencoded::parse(options.as_bytes()).find(|(name, _)| name == "db");
        return format!("{rest}?{}", database.as_ref().map_or("0", |(_, number)| number));
    }
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => host.to_owned(),
        _ => format!("{}:6379", if host.is_empty() { "127.0.0.1" } else { host }),
    };
    let hosts: Vec<String> = hosts.to_ascii_lowercase().split(',').map(with_port).collect();
    format!("{}/{}", hosts.join(","), if database.is_empty() { "0" } else { database })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_new_store_takes_its_share_and_no_other_key_moves(stores in 1..9_usize, seed in any::<u32>()) {
            let names: Vec<Digest> =
                (0..=stores).map(|store| digest::of(&[format!("h{seed}-{store}:6379/0").as_bytes()])).collect();
            let keys = 20_000;
            let mut moved = 0;
            for key in 0..keys {
                let key = digest::of(&[format!("{seed} {key}").as_bytes()]);
                let (before, after) = (highest(&names[..stores], key), highest(&names, key));
                if before != after {
                    prop_assert_eq!(after, stores, "a key only ever moves to the new store");
                    moved += 1;
                }
            }
            let share = f64::from(moved) / f64::from(keys);
            let fair = 1.0 / (stores as f64 + 1.0);
            prop_assert!((share - fair).abs() < 0.02, "{} of the keys moved, {} is fair", share, fair);
        }
    }

    #[test]
    fn a_store_has_one_name_in_all_spellings_of_its_url() {
        let same = ["redis://h", "redis://H:6379/0", "rediss://user:pw@h/", "valkey://h:6379?protocol=3"];
        for url in same {
            assert_eq!(name(url), "h:6379/0", "{url}");
        }
        for other in ["redis://h/1", "redis://h:6380", "redis://i", "redis+unix:///h"] {
            assert_ne!(name(other), name("redis://h"), "{other}");
        }
        assert_ne!(name("redis+unix:///run/r?db=1"), name("redis+unix:///run/r"));
        assert_eq!(name("redis+unix:///run/r?db=0"), name("redis+unix:///run/r"));
    }
}
