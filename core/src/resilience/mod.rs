//! What stands between a limiter and a store that others share, and that may fail: layers, each a store around a store.
//! From the outside in: deny cache, fallback, rollout, shards, and around each server its breaker.

mod breaker;
mod denial;
mod deny_cache;
mod digest;
mod fallback;
mod layer;
mod partitioned_store;
mod rollout;
mod shards;
mod signals;
#[cfg(test)]
mod stub;
mod table;
mod usage_snapshots;

pub(crate) use breaker::Breaker;
pub(crate) use deny_cache::LONGEST;
pub(crate) use rollout::Rollout;
pub(crate) use shards::Shards;
pub use signals::{Counters, StoreChange, StoreState};
pub(crate) use signals::{Listener, Signals, shown};
#[cfg(feature = "bench")]
pub(crate) use usage_snapshots::UsageSnapshots;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::policy::OnStoreError;
use crate::store::request::Entry;
use crate::store::{Store, layer_states};
use deny_cache::DenyCache;
use fallback::Fallback;
use layer::{CallState, Layer, Layered};

/// The words of all layers that a call can pass: rollout and shards remember one each.
const WORDS: usize = words::<DenyCache>() + words::<Fallback>() + 1 + 1 + words::<Breaker>();
const _: () = assert!(WORDS <= layer_states::CAPACITY, "the layers remember more of a call than there is room for");

const fn words<L: Layer>() -> usize {
    L::State::WORDS
}

/// The layers of a limiter, where something is to be said to one of them.
pub(crate) struct Layers {
    /// The outermost one.
    store: Arc<dyn Store>,
    fallback: Arc<Fallback>,
    deny_cache: Option<Arc<DenyCache>>,
    rollout: Option<Arc<Rollout>>,
    signals: Arc<Signals>,
}

impl Layers {
    /// Those that all stores have in common; `store` is the old one of a rollout.
    pub(crate) fn around(
        store: Arc<dyn Store>,
        rollout: Option<Rollout>,
        on_store_error: OnStoreError,
        deny_cache: Duration,
        signals: Arc<Signals>,
    ) -> Self {
        let rollout = rollout.map(Arc::new);
        let store = rollout.clone().map_or(store, |rollout| rollout);
        let fallback = Fallback::new(on_store_error, Arc::clone(&signals));
        let mut store = Layered::around(Arc::clone(&fallback), store);
        let deny_cache = (!deny_cache.is_zero()).then(|| Arc::new(DenyCache::new(deny_cache)));
        if let Some(deny_cache) = &deny_cache {
            store = Layered::around(Arc::clone(deny_cache), store);
        }
        Self { store, fallback, deny_cache, rollout, signals }
    }

    /// The outermost one.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Settles a check that a fallback answered.
    pub(crate) fn settle(&self, entry: &Entry<'_>, now: Option<u64>) {
        self.fallback.settle(entry, now);
    }

    pub(crate) fn set_rollout(&self, percent: f64) -> Result<()> {
        self.rollout.as_ref().ok_or_else(no_rollout)?.set(percent)?;
        if let Some(deny_cache) = &self.deny_cache {
            // The other store may admit what this one denied.
            deny_cache.forget();
        }
        Ok(())
    }

    pub(crate) fn counters(&self) -> Counters {
        let deny_cache = self.deny_cache.as_ref().map_or(0, |deny_cache| deny_cache.answers());
        Counters { deny_cache, ..self.signals.counters() }
    }
}

pub(crate) fn no_rollout() -> Error {
    Error::config("this limiter has no rollout: give it an old store and a new one when it is made")
}
