//! Jobs that a thread posts in a row, and that leave together: the first would leave alone otherwise, since nothing is in
//! flight yet, and all others would wait for its answer.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::engine::Shared;

thread_local! {
    /// Who is to be served when the row ends; nobody posts in a row while this is `None`.
    static HELD: RefCell<Option<SmallVec<[Arc<Shared>; 1]>>> = const { RefCell::new(None) };
}

/// Ends the row, even when a post panics.
struct Row;

impl Drop for Row {
    fn drop(&mut self) {
        let held = HELD.take();
        held.into_iter().flatten().for_each(|shared| shared.serve());
    }
}

/// Runs what posts jobs; they leave when it has ended.
pub(crate) fn together<R>(posts: impl FnOnce() -> R) -> R {
    let first = HELD.with_borrow_mut(|held| held.is_none().then(|| *held = Some(SmallVec::new())).is_some());
    let _row = first.then_some(Row);
    posts()
}

/// Whether a job waits for the end of its row.
pub(super) fn waits(shared: &Arc<Shared>) -> bool {
    HELD.with_borrow_mut(|held| {
        let Some(held) = held else { return false };
        if !held.iter().any(|other| Arc::ptr_eq(other, shared)) {
            held.push(Arc::clone(shared));
        }
        true
    })
}
