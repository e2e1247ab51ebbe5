//! A histogram with fixed bounds, which threads share.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of values up to each bound, and the sum of all.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Histogram {
    /// The upper bounds in ascending order. Each belongs to its bucket.
    pub bounds: Vec<f64>,
    /// The number of values in each bucket: above the bound before, and at most its own. There is one bucket more than
    /// bounds, for all values above the last bound.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
    /// The number of values.
    pub count: u64,
}

impl Histogram {
    /// The number of values up to each bound, and the number of all values.
    pub(crate) fn totals(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().scan(0, |total, count| {
            *total += count;
            Some(*total)
        })
    }
}

/// The histogram while it is filled. Values are whole numbers of a unit.
#[derive(Debug)]
pub(crate) struct SharedHistogram {
    bounds: &'static [u64],
    /// The number of units that make 1 in the histogram that users see.
    scale: f64,
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl SharedHistogram {
    pub(crate) fn new(bounds: &'static [u64], scale: f64) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, scale, buckets, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The histogram now. Its count is the sum of its buckets also while threads fill it.
    pub(crate) fn read(&self) -> Histogram {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        Histogram {
            bounds: self.bounds.iter().map(|bound| *bound as f64 / self.scale).collect(),
            count: counts.iter().sum(),
            counts,
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.scale,
        }
    }

    /// Starts again at zero.
    pub(crate) fn reset(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        self.sum.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bucket_of_the_first_bound_that_is_not_less() {
        let shared = SharedHistogram::new(&[10, 20], 10.0);
        [0, 10, 11, 20, 21, 1_000].into_iter().for_each(|value| shared.observe(value));
        let read = shared.read();
        assert_eq!(read.bounds, [1.0, 2.0]);
        assert_eq!((&*read.counts, read.count), (&[2, 2, 2][..], 6));
        assert!((read.sum - 106.2).abs() < 1e-9, "{}", read.sum);
        shared.reset();
        assert_eq!((shared.read().count, shared.read().sum), (0, 0.0));
    }
}
