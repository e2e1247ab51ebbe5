//! Handles of plans that are reused instead of counted.
//!
//! Every Decision holds a handle of its plan. All threads count the handles of one plan in one reference count, and its
//! cache line would move between their cores twice for every check. So a Decision that is dropped leaves its handle in a
//! cache of its thread, and the next Decision of that plan on the thread takes it from there: the count does not change.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use crate::plan::Plan;
use crate::policy::Policy;

/// Handles that one thread keeps: enough for a thread that checks several policies in turn.
const SLOTS: usize = 8;

thread_local! {
    static CACHE: PlanSlots<Arc<Plan>> = const { PlanSlots::new() };
}

/// The values that a thread keeps for plans, one per slot.
pub(crate) struct PlanSlots<T>([Cell<Option<T>>; SLOTS]);

impl<T> PlanSlots<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Cell::new(None) }; SLOTS])
    }

    /// The slot of a plan. Plans are at multiples of their size, so their addresses have to be spread.
    #[inline(always)]
    pub(crate) fn slot(&self, address: *const ()) -> &Cell<Option<T>> {
        &self.0[((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS]
    }
}

/// A handle of the plan at an address, from the cache or else from `count`.
#[inline]
fn handle_of(address: *const (), count: impl FnOnce() -> Arc<Plan>) -> Arc<Plan> {
    // The cache of a thread that is ending is gone.
    let cached = CACHE.try_with(|cache| cache.slot(address).take()).ok().flatten();
    cached.filter(|cached| Arc::as_ptr(cached).cast() == address).unwrap_or_else(count)
}

/// Another handle of a plan.
#[inline]
pub(crate) fn handle(plan: &Arc<Plan>) -> Arc<Plan> {
    handle_of(Arc::as_ptr(plan).cast(), || Arc::clone(plan))
}

/// A handle of a policy's plan. It compares the address and not the type, which would cost a call through a table.
#[inline]
pub(crate) fn plan_of(policy: &Policy) -> Arc<Plan> {
    handle_of(Arc::as_ptr(Plan::derived_from(policy)).cast(), || Plan::of(policy))
}

/// A handle that goes to the cache of the thread on which it is dropped.
pub(crate) struct PlanHandle(Option<Arc<Plan>>);

impl PlanHandle {
    #[inline]
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self(Some(plan))
    }
}

impl Clone for PlanHandle {
    fn clone(&self) -> Self {
        Self::new(handle(self))
    }
}

impl Deref for PlanHandle {
    type Target = Arc<Plan>;

    #[inline]
    fn deref(&self) -> &Arc<Plan> {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only `drop` takes the handle out"))
    }
}

impl Drop for PlanHandle {
    #[inline]
    fn drop(&mut self) {
        if let Some(plan) = self.0.take() {
            let _ = CACHE.try_with(|cache| cache.slot(Arc::as_ptr(&plan).cast()).replace(Some(plan)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_handle_is_reused_within_its_thread_and_never_for_another_plan() {
        let policy = || Policy::parse("5/minute").expect("a policy");
        let plan = plan_of(&policy());
        // Another plan that has the same slot.
        let slot_of = |plan: &Arc<Plan>| CACHE.with(|cache| ptr::from_ref(cache.slot(Arc::as_ptr(plan).cast())));
        let others: Vec<Policy> = (0..100 * SLOTS).map(|_| policy()).collect();
        let other = others.iter().map(plan_of).find(|other| slot_of(other) == slot_of(&plan)).expect("a shared slot");
        let before = Arc::strong_count(&plan);
        drop(PlanHandle::new(handle(&plan)));
        assert_eq!(Arc::strong_count(&plan), before + 1, "the cached handle");
        let taken = PlanHandle::new(handle(&plan));
        assert_eq!(Arc::strong_count(&plan), before + 1, "the cached handle, taken");
        assert!(Arc::ptr_eq(&PlanHandle::new(handle(&other)), &other));
        drop(taken);
        assert!(Arc::ptr_eq(&PlanHandle::new(handle(&other)), &other));
        let kept = Arc::clone(&plan);
        std::thread::spawn(move || drop(PlanHandle::new(handle(&kept)))).join().expect("a thread ends");
        assert_eq!(Arc::strong_count(&plan), before, "the other plan's handle replaced it, or its thread ended");
    }
}
