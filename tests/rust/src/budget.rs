//! The number of cases that a random test runs: all of them with `TIDEGATE_FULL=1`, which `make test-all` and the
//! nightly workflow set, and otherwise as many as fit into its seconds.

use std::time::{Duration, Instant};

/// True if the full counts run.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some_and(|value| !value.is_empty())
}

/// The cases of a test, a number each, until the time is over. A hundredth of them runs even on a slow machine.
pub fn within(seconds: u64, cases: impl IntoIterator<Item = u64>) -> Cases {
    let cases: Vec<u64> = cases.into_iter().collect();
    let least = if is_full() { cases.len() } else { cases.len().div_ceil(100) };
    Cases { cases, begun: 0, least, time: Duration::from_secs(seconds), start: Instant::now() }
}

/// Prints at its end which cases ran, even if the test fails.
pub struct Cases {
    cases: Vec<u64>,
    begun: usize,
    least: usize,
    time: Duration,
    start: Instant,
}

impl Cases {
    /// The number of cases that have begun.
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.begun as u64
    }
}

impl Iterator for Cases {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.begun >= self.least && self.start.elapsed() >= self.time {
            return None;
        }
        let case = *self.cases.get(self.begun)?;
        self.begun += 1;
        Some(case)
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        let (all, seconds) = (self.cases.len(), self.start.elapsed().as_secs_f64());
        match self.begun.checked_sub(1) {
            Some(last) => println!(
                "{} of {all} cases ran in {seconds:.1} s, seeds {} to {}; TIDEGATE_FULL=1 runs all",
                self.begun, self.cases[0], self.cases[last]
            ),
            None => println!("none of {all} cases ran"),
        }
    }
}

/// The cases of a property: all of them, or an eighth.
#[must_use]
pub fn share(cases: u32) -> u32 {
    if is_full() { cases } else { cases.div_ceil(8) }
}
