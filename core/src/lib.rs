#![doc = include_str!("../../README.md")]

mod algorithm;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod clock;
mod decision;
mod error;
mod limiter;
mod plan;
pub mod policy;
mod script;
mod store;
mod value;

pub use clock::ManualClock;
pub use decision::{Decision, LimitState};
pub use error::{Error, ErrorKind, Place, Result};
pub use limiter::{AsPolicy, AsyncLimiter, Builder, CheckOptions, Hold, Limiter, MAX_KEY, MAX_META, PolicyRef};
pub use policy::{Algorithm, Limit, OnStoreError, Options, Period, Policy, PolicyFile, Unit, Warning, lint};
pub use store::{Attempt, Source};
