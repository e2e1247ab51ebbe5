#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alarm;
mod algorithm;
mod allocation;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod clock;
mod decision;
mod error;
mod fork;
mod hash_slab;
mod histogram;
#[doc(hidden)]
pub mod host;
pub mod http;
mod limiter;
mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(all(feature = "files", feature = "redis", feature = "tls")))]
mod missing_feature;
mod one_or_many;
mod plan;
mod plan_cache;
pub mod policy;
mod policy_counts;
#[cfg(any(feature = "files", feature = "redis"))]
mod regular_file;
mod resilience;
#[cfg(test)]
mod schedules;
mod stats;
mod store;
mod table_key;

pub use clock::ManualClock;
pub use decision::{Decision, LimitState};
pub use error::{Error, ErrorKind, Result, SourceLocation};
pub use fork::after_fork_in_child;
pub use histogram::Histogram;
pub use limiter::{
    AsPolicy, AsyncLimiter, Builder, CheckEntry, CheckOptions, Hold, HoldAnswer, Limiter, MAX_KEY, MAX_META, PolicyRef,
    PolicyUse, Stats,
};
pub use policy::{
    Algorithm, Lease, Limit, OnStoreError, Options, Period, Policy, PolicyFile, Unit, Warning, lint, lint_policies,
};
pub use resilience::{Counters, StoreChange, StoreCondition, StoreState, StoreStats};
pub use stats::{MAX_COUNTED_POLICIES, OTHER_POLICIES, PolicyStats, SourceCounts};
pub use store::request::{Attempt, Source};
