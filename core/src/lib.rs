#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod decision;
mod error;
mod histogram;
#[doc(hidden)]
pub mod host;
pub mod http;
mod limiter;
#[cfg(feature = "metrics")]
pub mod metrics;
mod plan;
pub mod policy;
mod policy_counts;
mod process;
mod resilience;
#[cfg(test)]
mod schedules;
mod stats;
mod store;
mod tables;

pub use decision::{Decision, LimitState};
pub use error::{Error, ErrorKind, Result, SourceLocation};
pub use histogram::Histogram;
pub use limiter::{
    AsPolicy, AsyncLimiter, Builder, CheckEntry, CheckOptions, Hold, HoldAnswer, Limiter, MAX_KEY, MAX_META, PolicyRef,
    PolicyUse, Stats,
};
pub use policy::{
    Algorithm, Lease, Limit, OnStoreError, Options, Period, Policy, PolicyFile, Unit, Warning, lint, lint_policies,
};
pub use process::clock::ManualClock;
pub use process::fork::after_fork_in_child;
pub use resilience::{Counters, StoreChange, StoreCondition, StoreState, StoreStats};
pub use stats::{MAX_COUNTED_POLICIES, OTHER_POLICIES, PolicyStats, SourceCounts};
pub use store::request::{Attempt, Source};
