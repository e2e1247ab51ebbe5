//! Which cell a thread counts in. A thread takes the first free one when it first counts, and gives it back when it ends.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::SHARED;

const _: () = assert!(SHARED < u32::BITS as usize, "a cell has a bit of `TAKEN`");

/// A bit for each cell that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The cell of this thread; `SHARED` while it has none of its own. Nothing is dropped with it, so that reading it is one
    /// instruction.
    static CELL: Cell<usize> = const { Cell::new(SHARED) };
    static GUARD: CellGuard = const { CellGuard };
}

/// Gives the cell back when its thread ends.
struct CellGuard;

impl Drop for CellGuard {
    fn drop(&mut self) {
        let cell = CELL.replace(SHARED);
        if cell != SHARED {
            // Release: the next thread that takes the cell continues from what this one has counted.
            TAKEN.fetch_and(!(1 << cell), Ordering::Release);
        }
    }
}

#[inline(always)]
pub(super) fn current() -> usize {
    CELL.get()
}

/// Takes a cell for this thread, if one is free and the thread is not ending.
pub(super) fn assign() -> usize {
    let taken = || {
        let free = |taken: u32| {
            let cell = taken.trailing_ones();
            (cell < SHARED as u32).then(|| taken | 1 << cell)
        };
        let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free);
        before.map_or(SHARED, |before| before.trailing_ones() as usize)
    };
    if CELL.get() == SHARED && GUARD.try_with(|_| ()).is_ok() {
        CELL.set(taken());
    }
    CELL.get()
}

/// In a forked child: the threads of the parent do not exist here, and give nothing back.
pub(crate) fn leave_only_this_thread() {
    let cell = CELL.get();
    TAKEN.store(if cell == SHARED { 0 } else { 1 << cell }, Ordering::Relaxed);
}
