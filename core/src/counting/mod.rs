//! The counts of a limiter: the decisions of each policy, the calls to shared stores, and events. They contain no key,
//! except for the keys that `tidegate top` shows. `cells.rs` and `histogram.rs` name nothing else of the core, because
//! plans and stores contain them.

pub(crate) mod cells;
#[macro_use]
mod counters;
mod decision_counts;
mod denied_keys;
pub(crate) mod histogram;
mod metric;
#[cfg(feature = "metrics")]
pub mod metrics;
mod stats;
mod store_stats;

pub use counters::Counters;
pub(crate) use counters::SharedCounters;
pub(crate) use decision_counts::DecisionCounts;
pub use decision_counts::{MAX_COUNTED_POLICIES, OTHER_POLICIES, PolicyStats, SourceCounts};
pub(crate) use denied_keys::DeniedKeys;
pub(crate) use metric::{MetricKind, MetricValue, metrics as metric_list};
pub use stats::Stats;
pub(crate) use store_stats::{ConditionOf, StoreHistograms};
pub use store_stats::{StoreCondition, StoreStats};
