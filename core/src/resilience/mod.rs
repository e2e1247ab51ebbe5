//! The layers between a limiter and a shared store. Each is a [`Store`] around a [`Store`]. From the outside in: leases, deny cache,
//! fallback, rollout, shards, and around each server its breaker.

mod breaker;
mod deny_cache;
mod digest;
mod fallback;
mod key_table;
mod known_overrides;
mod layer;
mod leases;
mod one_by_one;
mod partitioned_store;
mod rollout;
mod shards;
mod store_change;
#[cfg(test)]
mod stub_store;
mod telemetry;

pub(crate) use breaker::Breaker;
pub(crate) use deny_cache::{DenialGenerations, MAX_DENY_CACHE};
#[cfg(feature = "bench")]
pub(crate) use fallback::UsageSnapshots;
pub(crate) use known_overrides::KnownOverrides;
pub(crate) use layer::{ask, ask_all, submit, submit_all, try_immediate};
pub(crate) use one_by_one::OneByOne;
pub(crate) use rollout::{Rollout, share_of};
pub(crate) use shards::Shards;
pub(crate) use store_change::Listener;
pub use store_change::{StoreChange, StoreState};
pub(crate) use telemetry::Telemetry;

use std::sync::Arc;
use std::time::Duration;

use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::policy::OnStoreError;
use crate::process::clock::ManualClock;
use crate::store::Store;
use crate::store::request::Entry;
use deny_cache::DenyCache;
use fallback::Fallback;
use layer::Layered;
use leases::Leases;

/// The layers of a limiter, for calls that are about one of them.
pub(crate) struct Layers {
    /// The outermost layer.
    store: Arc<dyn Store>,
    fallback: Arc<Fallback>,
    deny_cache: Option<Arc<DenyCache>>,
    leases: Arc<Leases>,
    rollout: Option<Arc<Rollout>>,
    /// A forked child counts its events anew. The tables of its leases and its deny cache are its own in any case.
    pub(crate) telemetry: Arc<Telemetry>,
}

impl Layers {
    /// The layers that all stores have in common. `store` is used if there is no rollout.
    pub(crate) fn around(
        store: Arc<dyn Store>,
        rollout: Option<Rollout>,
        on_store_error: OnStoreError,
        deny_cache: Duration,
        timeout: Duration,
        clock: Option<Arc<ManualClock>>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let rollout = rollout.map(Arc::new);
        let store = rollout.clone().map_or(store, |rollout| rollout);
        let fallback = Fallback::new(on_store_error, Arc::clone(&telemetry));
        let mut store = Layered::around(Arc::clone(&fallback), store);
        let deny_cache = (!deny_cache.is_zero()).then(|| Arc::new(DenyCache::new(deny_cache)));
        if let Some(deny_cache) = &deny_cache {
            store = Layered::around(Arc::clone(deny_cache), store);
        }
        let leases = Leases::new(Arc::clone(&store), timeout, clock);
        let store = Layered::around(Arc::clone(&leases), store);
        Self { store, fallback, deny_cache, leases, rollout, telemetry }
    }

    /// The outermost layer.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Settles a check that a fallback answered.
    pub(crate) fn settle(&self, entry: &Entry<'_>, now: Option<u64>) {
        self.fallback.settle(entry, now);
        if let Some(deny_cache) = &self.deny_cache {
            deny_cache.invalidate(entry);
        }
    }

    pub(crate) fn set_rollout(&self, percent: f64) -> Result<()> {
        self.rollout.as_ref().ok_or_else(no_rollout)?.set(percent)?;
        if let Some(deny_cache) = &self.deny_cache {
            // The other store may admit calls that the first one has denied.
            deny_cache.clear();
        }
        self.leases.forget();
        Ok(())
    }

    /// The numbers that show if a denial may still be repeated. `None` without a deny cache.
    pub(crate) fn denial_generations(&self) -> Option<&DenialGenerations> {
        self.deny_cache.as_ref().map(|deny_cache| &deny_cache.generations)
    }

    /// Counts denials that a host has repeated itself.
    pub(crate) fn count_repeated(&self, times: u64) {
        if let Some(deny_cache) = &self.deny_cache {
            deny_cache.count_repeated(times);
        }
    }

    /// Called when a clock that is moved by hand shows another time.
    pub(crate) fn time_changed(&self) {
        self.leases.expire();
    }

    pub(crate) fn counters(&self) -> Counters {
        let deny_cache = self.deny_cache.as_ref().map_or(0, |deny_cache| deny_cache.answers());
        Counters { deny_cache, lease: self.leases.answers(), ..self.telemetry.counters() }
    }
}

pub(crate) fn no_rollout() -> Error {
    Error::config("this limiter has no rollout: give it an old store and a new one when it is made")
}
