//! Several stores, each with a share of the keys.
//!
//! Entries of different stores are still all charged or none. They are charged store by store, in order, and refunded
//! if a later store refuses or fails. All of that has the time of one call.

mod partition_progress;
mod pending_check_all;

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::error::Result;
use crate::plan::Plan;
use crate::store::Store;
use crate::store::call_context::CallContext;
use crate::store::layer_states::LayerStates;
use crate::store::request::{Answer, Entry, Operation};
use pending_check_all::PendingCheckAll;

/// Assigns keys to stores.
pub(super) trait PartitionedStore: Send + Sync {
    fn stores(&self) -> &Arc<[Arc<dyn Store>]>;

    /// The timeout of a call.
    fn timeout(&self) -> Duration;

    /// The number of the store that has the entry's key.
    fn store_of(&self, entry: &Entry<'_>) -> usize;

    /// The number of the part that has the entry's key: the entries of a part are charged together, all or none.
    fn part_of(&self, entry: &Entry<'_>) -> u64 {
        self.store_of(entry) as u64
    }

    /// The stores that have to know the numbers of the entry's key, with its own store first.
    fn stores_of_override(&self, entry: &Entry<'_>) -> SmallVec<[usize; 2]> {
        smallvec![self.store_of(entry)]
    }

    /// The place for the number of the store that a call has asked.
    fn asked(states: &mut LayerStates) -> &mut u32;
}

impl<T: PartitionedStore> Store for T {
    fn begin(&self, entry: &Entry<'_>, context: CallContext<'_>, states: &mut LayerStates) -> Option<Result<Answer>> {
        let store = self.store_of(entry);
        *Self::asked(states) = store as u32;
        self.stores()[store].begin(entry, context, states)
    }

    /// By the store that was asked, because the key may belong to another store by now.
    fn finish(
        &self,
        entry: &Entry<'_>,
        now: Option<u64>,
        states: &mut LayerStates,
        result: Result<Answer>,
    ) -> Result<Answer> {
        let store = *Self::asked(states);
        self.stores()[store as usize].finish(entry, now, states, result)
    }

    fn begin_all(
        &self,
        entries: &[Entry<'_>],
        context: CallContext<'_, Vec<Answer>>,
        states: &mut LayerStates,
    ) -> Option<Result<Vec<Answer>>> {
        PendingCheckAll::start(self, entries, &context, states)
    }

    /// Succeeds if all stores answer. Otherwise it has the error of the first one that does not.
    fn ping(&self, deadline: Option<Instant>) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.ping(deadline))
    }

    fn accepts(&self, plan: &Plan) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.accepts(plan))
    }

    fn clear_all(&self) -> Result<()> {
        self.stores().iter().try_for_each(|store| store.clear_all())
    }

    fn change_override(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<()> {
        self.stores_of_override(entry)
            .into_iter()
            .try_for_each(|store| self.stores()[store].change_override(entry, now))
    }

    fn overrides(&self, entry: &Entry<'_>, now: Option<u64>) -> Result<Answer> {
        self.stores().iter().enumerate().try_fold(Answer::default(), |mut all, (number, store)| {
            let of_store = store.overrides(entry, now)?.into_overrides();
            // An override is in force only in the store of its key.
            let has = |key: &str| {
                self.store_of(&Entry { plan: entry.plan, key, operation: Operation::ListOverrides }) == number
            };
            all.rare.get_or_insert_default().overrides.extend(of_store.into_iter().filter(|own| has(&own.key)));
            Ok(all)
        })
    }

    fn close(&self) {
        self.stores().iter().for_each(|store| store.close());
    }
}
