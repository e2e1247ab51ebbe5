//! Several stores that share the keys among them, by rendezvous hashing: each key goes to the store that scores highest for
//! it, so a new store takes its share from all others, and nothing else moves.

use std::sync::Arc;
use std::time::Duration;

use super::digest::{self, Digest};
use super::partitioned_store::PartitionedStore;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::request::Entry;

/// See the module.
pub(crate) struct Shards {
    stores: Arc<[Arc<dyn Store>]>,
    names: Vec<Digest>,
    timeout: Duration,
}

impl Shards {
    /// Stores and their URLs; which options and which credentials a URL has makes no difference to where a key lives.
    /// `timeout` is what a call may take.
    ///
    /// # Errors
    /// `config_invalid` for a store that is given twice.
    pub(crate) fn new(stores: Vec<(Arc<dyn Store>, String)>, timeout: Duration) -> Result<Self> {
        let mut names = Vec::with_capacity(stores.len());
        for (_, url) in &stores {
            let name = digest::of(&[name(url).as_bytes()]);
            if names.contains(&name) {
                let shown = super::signals::shown(url);
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

    fn store_of(&self, entry: &Entry<'_>) -> usize {
        highest(&self.names, digest::of(&[&entry.plan.identity.to_le_bytes(), entry.key.as_bytes()]))
    }
}

fn highest(names: &[Digest], key: Digest) -> usize {
    let score = |name: &Digest| digest::mixed(name ^ key);
    names.iter().enumerate().max_by_key(|(_, name)| score(name)).map_or(0, |(index, _)| index)
}

/// What tells a store from others: where it is, without what may be left out.
fn name(url: &str) -> String {
    let shown = super::signals::shown(url);
    let (scheme, rest) = shown.split_once("://").unwrap_or(("", &shown));
    if scheme.contains("unix") {
        // The database of a socket is an option.
        let database = url::Url::parse(&url.replacen("@/", "@localhost/", 1))
            .ok()
            .and_then(|url| url.query_pairs().find(|(name, _)| name == "db").map(|(_, value)| value.into_owned()));
        return format!("{rest}?{}", database.as_deref().unwrap_or("0"));
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
        fn a_new_store_takes_its_share_and_nothing_else_moves(stores in 1..9_usize, seed in any::<u32>()) {
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
    fn a_store_is_the_same_however_its_url_is_written() {
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
