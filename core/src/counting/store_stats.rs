//! The counts of calls to shared stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counters::Counters;
use super::histogram::{Histogram, SharedHistogram};
use crate::error::ErrorKind;

/// The calls to the shared stores of a limiter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Calls that have ended, answered or not. Checks that travel as one batch are several calls, and a `check_all` is one.
    pub calls: u64,
    /// Their durations in seconds, with all waiting.
    pub latency: Histogram,
    /// The number of operations in each script call to a server.
    pub batch_size: Histogram,
    /// Calls that failed, by the code of the error.
    pub errors: BTreeMap<&'static str, u64>,
}

impl Default for StoreStats {
    /// Without any call.
    fn default() -> Self {
        StoreHistograms::default().stats(&Counters::default())
    }
}

/// The condition of a store, as its breaker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreCondition {
    /// It answers, or has not been asked yet.
    Ok,
    /// It does not answer, and is not asked until it does.
    Lost,
    /// It answers with errors.
    Refusing,
}

impl StoreCondition {
    /// Every condition.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Lost, Self::Refusing];

    /// The word in stats and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Lost => "lost",
            Self::Refusing => "refusing",
        }
    }
}

/// Returns the URL of a store, without secrets, and its condition. Returns nothing if the store is gone.
pub(crate) type ConditionOf = Arc<dyn Fn() -> Option<(String, StoreCondition)> + Send + Sync>;

/// The bounds of latencies, in microseconds …
const LATENCIES: [u64; 14] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000];
const MICROS_PER_SECOND: f64 = 1e6;
/// … and of batch sizes.
const BATCH_SIZES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The histograms while they are filled.
#[derive(Debug)]
pub(crate) struct StoreHistograms {
    pub(crate) latency: SharedHistogram,
    pub(crate) batch_sizes: Arc<SharedHistogram>,
}

impl Default for StoreHistograms {
    fn default() -> Self {
        Self {
            latency: SharedHistogram::new(&LATENCIES, MICROS_PER_SECOND),
            batch_sizes: Arc::new(SharedHistogram::new(&BATCH_SIZES, 1.0)),
        }
    }
}

impl StoreHistograms {
    pub(crate) fn stats(&self, counters: &Counters) -> StoreStats {
        // The counters that are named after the code of an error.
        let of_errors = |(name, _): &(&'static str, u64)| ErrorKind::ALL.iter().any(|kind| kind.code() == *name);
        let errors = counters.by_name().filter(of_errors);
        let latency = self.latency.read();
        StoreStats { calls: latency.count, latency, batch_size: self.batch_sizes.read(), errors: errors.collect() }
    }

    pub(crate) fn reset(&self) {
        self.latency.reset();
        self.batch_sizes.reset();
    }
}
