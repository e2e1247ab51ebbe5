#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    any(not(unix), all(feature = "stored", not(feature = "redis"))),
    allow(
        dead_code,
        unused_imports,
        reason = "stores write values, and neither this system nor the features have all of them"
    )
)]

mod algorithm;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod counting;
mod decision;
mod error;
mod flow;
#[doc(hidden)]
pub mod host;
pub mod http;
mod limiter;
mod plan;
pub mod policy;
mod process;
#[cfg(test)]
mod random;
mod resilience;
#[cfg(test)]
mod schedules;
pub mod store;
mod tables;

pub use counting::histogram::Histogram;
#[cfg(feature = "metrics")]
pub use counting::metrics;
pub use counting::{
    Counters, MAX_COUNTED_POLICIES, OTHER_POLICIES, PolicyStats, SourceCounts, Stats, StoreCondition, StoreStats,
};
pub use decision::{Decision, LimitState};
pub use error::{Error, ErrorKind, Result, SourceLocation};
pub use limiter::{
    Allowance, AsPolicy, AsyncLimiter, Builder, CheckEntry, CheckOptions, Cost, Hold, HoldAnswer, Limiter, MAX_KEY,
    MAX_META, OverriddenKey, PolicyRef, PolicyUse, Units,
};
pub use policy::{
    Algorithm, Anchor, BlockFor, KeyOverride, Lease, Limit, OnStoreError, Options, Overrides, Period, Policy,
    PolicyFile, Priorities, TimeUnit, Unit, Warning, lint, lint_policies,
};
pub use process::clock::ManualClock;
pub use process::fork::after_fork_in_child;
pub use resilience::{StoreChange, StoreState};
pub use store::request::{Attempt, Source};
