//! Jobs that a thread posts in a row, and that leave together: the first would leave alone otherwise, since nothing is in
//! flight yet, and all others would wait for its answer.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::engine::Shared;

/// Engines whose jobs wait.
pub(super) type Held = SmallVec<[Arc<Shared>; 1]>;

thread_local! {
    /// Of the row this thread posts in, if it does.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Calls that leave together, at the latest when this is dropped: those that were posted in [`hold`](Self::hold).
#[derive(Default)]
pub struct Row(Held);

impl Row {
    pub(super) const fn of(engines: Held) -> Self {
        Self(engines)
    }

    /// Runs what posts calls. Within another row they belong to that one.
    pub fn hold<R>(&mut self, posts: impl FnOnce() -> R) -> R {
        let outermost = HELD.with_borrow_mut(|held| held.is_none().then(|| *held = Some(std::mem::take(&mut self.0))));
        let _back = outermost.map(|()| Back(self));
        posts()
    }

    /// Lets them leave now.
    pub fn leave(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(|shared| shared.serve());
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The thread posts in this row no more, even when a post panics.
struct Back<'a>(&'a mut Row);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.0 = HELD.take().unwrap_or_default();
    }
}

/// Whether a job waits for its row.
pub(super) fn waits(shared: &Arc<Shared>) -> bool {
    HELD.with_borrow_mut(|held| {
        let Some(held) = held else { return false };
        if !held.iter().any(|other| Arc::ptr_eq(other, shared)) {
            held.push(Arc::clone(shared));
        }
        true
    })
}
