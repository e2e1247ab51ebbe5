//! A store that changes one key at a time: a `check_all` charges its keys one after the other, and gives back if one refuses.

use std::sync::Arc;
use std::time::Duration;

use super::digest;
use super::partitioned_store::PartitionedStore;
use crate::store::Store;
use crate::store::layer_states::LayerStates;
use crate::store::request::Entry;

/// Splits the calls of several keys.
pub(crate) struct OneByOne {
    /// The one store.
    stores: Arc<[Arc<dyn Store>]>,
    timeout: Duration,
}

impl OneByOne {
    pub(crate) fn new(store: Arc<dyn Store>, timeout: Duration) -> Self {
        Self { stores: Arc::new([store]), timeout }
    }
}

impl PartitionedStore for OneByOne {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]> {
        &self.stores
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn asked(states: &mut LayerStates) -> &mut u32 {
        &mut states.shard
    }

    fn store_of(&self, _: &Entry<'_>) -> usize {
        0
    }

    fn part_of(&self, entry: &Entry<'_>) -> u64 {
        digest::of(&[entry.plan.policy.name().as_bytes(), entry.key.as_bytes()])
    }
}
