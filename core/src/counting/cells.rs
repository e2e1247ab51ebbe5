//! The decisions of one policy, counted without a shared cache line, because a check in memory takes only about as long
//! as seven atomic additions.
//!
//! Each thread adds in a cell that only it writes, with a load and a store. Threads beyond the number of cells share
//! the last one, with atomic additions. A reader adds all cells up. A thread takes the first free cell when it first
//! counts, and gives it back when it ends.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of classes that are counted apart, see [`super::decision_counts`].
pub(crate) const CLASSES: usize = 16;
/// The number of cells of a policy. The last one is shared.
const CELLS: usize = 32;
const SHARED: usize = CELLS - 1;

/// Two cache lines, which the processor fetches together: no other thread writes to them.
#[derive(Default)]
#[repr(align(128))]
struct CountCell([AtomicU64; CLASSES]);

const _: () = assert!(size_of::<CountCell>() == 128, "a cell has grown");

/// Counts the decisions of one policy, in a cell for each thread.
pub(crate) struct PolicyCounts {
    /// The number of the limiter that made these decisions.
    limiter: u32,
    cells: [CountCell; CELLS],
}

impl fmt::Debug for PolicyCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyCounts").field("limiter", &self.limiter).field("sums", &self.sums()).finish()
    }
}

impl PolicyCounts {
    pub(crate) fn new(limiter: u32) -> Self {
        Self { limiter, cells: Default::default() }
    }

    #[inline(always)]
    pub(crate) const fn limiter(&self) -> u32 {
        self.limiter
    }

    /// Counts one decision of a class.
    #[inline(always)]
    pub(crate) fn add(&self, class: usize) {
        let cell = CELL.get();
        if cell < SHARED {
            self.add_alone(cell, class);
        } else {
            self.add_slowly(class);
        }
    }

    /// Counts decisions of a class that others have counted.
    pub(crate) fn add_counted(&self, class: usize, number: u64) {
        self.cells[SHARED].0[class % CLASSES].fetch_add(number, Ordering::Relaxed);
    }

    /// For a cell that only this thread writes.
    #[inline(always)]
    fn add_alone(&self, cell: usize, class: usize) {
        let count = &self.cells[cell].0[class % CLASSES];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[cold]
    fn add_slowly(&self, class: usize) {
        match assign() {
            SHARED => self.add_counted(class, 1),
            cell => self.add_alone(cell, class),
        }
    }

    /// The number of decisions of each class.
    pub(crate) fn sums(&self) -> [u64; CLASSES] {
        let sum = |class: usize| self.cells.iter().map(|cell| cell.0[class].load(Ordering::Relaxed)).sum();
        std::array::from_fn(sum)
    }

    /// Starts again at zero. No other thread may count at the same time.
    pub(crate) fn reset(&self) {
        self.cells.iter().flat_map(|cell| &cell.0).for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

const _: () = assert!(SHARED < u32::BITS as usize, "a cell has a bit of `TAKEN`");

/// A bit for each cell that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The cell of this thread, or `SHARED` while it has none. It has no destructor, so that reading it is one
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
            // Release: the next thread that takes the cell continues from the counts of this one.
            TAKEN.fetch_and(!(1 << cell), Ordering::Release);
        }
    }
}

/// Takes a cell for this thread, if one is free and the thread is not ending.
fn assign() -> usize {
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

/// Frees the cells of the parent's threads in a forked child. They do not exist here, and give nothing back.
pub(crate) fn leave_only_this_thread() {
    let cell = CELL.get();
    TAKEN.store(if cell == SHARED { 0 } else { 1 << cell }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    /// More threads than cells, that end and are replaced by others, all at the same time.
    #[test]
    fn the_sums_are_exact_with_more_threads_than_cells() {
        const THREADS: usize = 2 * CELLS;
        const ROUNDS: usize = 3;
        const CALLS: u64 = 2_000;
        let (counts, start) = (Arc::new(PolicyCounts::new(1)), Arc::new(Barrier::new(THREADS)));
        let run = |number: usize| {
            let (counts, start) = (Arc::clone(&counts), Arc::clone(&start));
            thread::spawn(move || {
                counts.add(number % CLASSES);
                // All of them have counted before one of them ends.
                start.wait();
                (1..CALLS).for_each(|_| counts.add(number % CLASSES));
            })
        };
        for _ in 0..ROUNDS {
            let threads: Vec<_> = (0..THREADS).map(run).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
        }
        let each = (THREADS / CLASSES * ROUNDS) as u64 * CALLS;
        assert_eq!(counts.sums(), [each; CLASSES]);
        assert!(counts.cells[SHARED].0.iter().any(|count| count.load(Ordering::Relaxed) > 0), "some threads shared");
        counts.reset();
        assert_eq!(counts.sums(), [0; CLASSES]);
    }
}
