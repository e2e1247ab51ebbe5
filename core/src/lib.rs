#![doc = include_str!("../../README.md")]

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
#[doc(hidden)]
pub mod host;
pub mod http;
mod limiter;
mod log;
mod one_or_many;
mod plan;
mod plan_cache;
pub mod policy;
mod resilience;
mod store;
mod table_key;

pub use clock::ManualClock;
pub use decision::{Decision, LimitState};
pub use error::{Error, ErrorKind, Result, SourceLocation};
pub use fork::after_fork_in_child;
pub use limiter::{
    AsPolicy, AsyncLimiter, Builder, CheckEntry, CheckOptions, Hold, HoldAnswer, Limiter, MAX_KEY, MAX_META, PolicyRef,
    PolicyUse,
};
pub use policy::{
    Algorithm, Lease, Limit, OnStoreError, Options, Period, Policy, PolicyFile, Unit, Warning, lint, lint_policies,
};
pub use resilience::{Counters, StoreChange, StoreState};
pub use store::request::{Attempt, Source};
