//! Moves keys from an old store to a new one, a share at a time: a larger share has all keys of a smaller one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::digest;
use super::partitioned_store::PartitionedStore;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::layer_states::LayerStates;
use crate::store::request::Entry;

/// All keys, in the unit of a share: a ten-thousandth of a percent.
const ALL_KEYS: u32 = 1_000_000;

/// Decides if a key belongs to the new store already.
pub(crate) struct Rollout {
    /// The old store and the new one.
    stores: Arc<[Arc<dyn Store>]>,
    /// The share of the new store.
    share: AtomicU32,
    timeout: Duration,
}

/// The share of the keys for a percentage.
///
/// # Errors
/// `config_invalid` for a number that is no percentage.
pub(crate) fn share_of(percent: f64) -> Result<u32> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Error::config(format!("a rollout of {percent} percent is out of range: give from 0 to 100")));
    }
    Ok((percent * f64::from(ALL_KEYS) / 100.0).round() as u32)
}

impl Rollout {
    /// `timeout` is that of a call.
    ///
    /// # Errors
    /// `config_invalid` for a number that is no percentage.
    pub(crate) fn new(old: Arc<dyn Store>, new: Arc<dyn Store>, percent: f64, timeout: Duration) -> Result<Self> {
        Ok(Self { stores: Arc::new([old, new]), share: AtomicU32::new(share_of(percent)?), timeout })
    }

    /// # Errors
    /// As [`Rollout::new`].
    pub(crate) fn set(&self, percent: f64) -> Result<()> {
        self.share.store(share_of(percent)?, Ordering::Relaxed);
        Ok(())
    }
}

impl PartitionedStore for Rollout {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]> {
        &self.stores
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn asked(states: &mut LayerStates) -> &mut u32 {
        &mut states.rollout
    }

    /// By the key alone, so that a key moves with all its policies. The digest differs from that of the shards.
    fn store_of(&self, entry: &Entry<'_>) -> usize {
        let position = digest::of(&[b"rollout", entry.key.as_bytes()]) % u64::from(ALL_KEYS);
        usize::from(position < u64::from(self.share.load(Ordering::Relaxed)))
    }

    /// Both: a key that moves, or that moves back, keeps its numbers.
    fn stores_of_override(&self, entry: &Entry<'_>) -> SmallVec<[usize; 2]> {
        let own = self.store_of(entry);
        smallvec![own, 1 - own]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::plan::plan_cache::plan_of;
    use crate::policy::Policy;
    use crate::resilience::breaker::Breaker;
    use crate::resilience::layer::submit_then;
    use crate::resilience::stub_store::StubStore;
    use crate::resilience::telemetry::Telemetry;
    use crate::store::call_context::CallContext;
    use crate::store::request::Operation;

    #[test]
    fn an_answer_passes_the_layers_of_the_store_that_gave_it() {
        let stub = Arc::new(StubStore::default());
        let (old, new) = (Arc::new(Telemetry::default()), Arc::new(Telemetry::default()));
        let with_breaker = |telemetry| {
            Breaker::around(Arc::clone(&stub) as Arc<dyn Store>, "redis://h", Duration::from_secs(1), telemetry)
        };
        let rollout =
            Rollout::new(with_breaker(Arc::clone(&old)), with_breaker(Arc::clone(&new)), 0.0, Duration::from_secs(1))
                .expect("a rollout");
        let rollout = Arc::new(rollout);
        let store: Arc<dyn Store> = Arc::<Rollout>::clone(&rollout);
        let plan = plan_of(&Policy::parse("1/hour").expect("a policy"));
        for _ in 0..3 {
            let entry = Entry { plan: &plan, key: "k", operation: Operation::peek(1) };
            assert!(submit_then(&store, &entry, CallContext::at(None), |_| None).is_none());
        }
        // The key moves while its calls are in flight.
        rollout.set(100.0).expect("a percentage");
        (0..3).for_each(|_| stub.answer(Err(Error::new(ErrorKind::StoreUnavailable, "gone"))));
        assert_eq!((old.counters().lost, new.counters().lost), (1, 0));
    }
}
