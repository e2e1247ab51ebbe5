//! The decisions of one policy, counted without a shared cache line: a check in memory takes about as long as seven atomic
//! additions.
//!
//! Each thread adds in a cell that it alone writes, with a load and a store. Threads beyond the number of cells share the
//! last one, with atomic additions. A reader adds all cells up.

mod thread_cell;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use thread_cell::leave_only_this_thread;

/// What is counted apart, see [`crate::stats`].
pub(crate) const CLASSES: usize = 16;
/// The cells of a policy; the last one is shared.
const CELLS: usize = 32;
const SHARED: usize = CELLS - 1;

/// Two cache lines, which the processor fetches together: no other thread writes to them.
#[derive(Default)]
#[repr(align(128))]
struct CountCell([AtomicU64; CLASSES]);

const _: () = assert!(size_of::<CountCell>() == 128, "a cell has grown");

/// Counts the decisions of one policy, in a cell for each thread.
pub(crate) struct PolicyCounts {
    /// The number of the limiter whose decisions these are.
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
        let cell = thread_cell::current();
        if cell < SHARED {
            self.add_alone(cell, class);
        } else {
            self.add_slowly(class);
        }
    }

    /// For a cell that only this thread writes.
    #[inline(always)]
    fn add_alone(&self, cell: usize, class: usize) {
        let count = &self.cells[cell].0[class % CLASSES];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[cold]
    fn add_slowly(&self, class: usize) {
        match thread_cell::assign() {
            SHARED => {
                self.cells[SHARED].0[class % CLASSES].fetch_add(1, Ordering::Relaxed);
            }
            cell => self.add_alone(cell, class),
        }
    }

    /// How many decisions of each class there were.
    pub(crate) fn sums(&self) -> [u64; CLASSES] {
        let sum = |class: usize| self.cells.iter().map(|cell| cell.0[class].load(Ordering::Relaxed)).sum();
        std::array::from_fn(sum)
    }

    /// Starts again at zero. No other thread may count at the same time.
    pub(crate) fn reset(&self) {
        self.cells.iter().flat_map(|cell| &cell.0).for_each(|count| count.store(0, Ordering::Relaxed));
    }
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
