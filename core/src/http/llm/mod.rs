//! The cost of a call of a large language model
//! ([ADR 0040](https://github.com/tidegate/tidegate/blob/main/docs/adr/0040-what-a-call-of-an-llm-costs.md)).
//!
//! `dialects.rs` is the table of the requests that are read, and `request.rs` reads them. `usage.rs` and `usage_scanner.rs` read
//! the usage in a response. `estimator.rs` computes tokens from both, with the calls of each model that `learned.rs` keeps.

mod dialects;
mod estimator;
mod learned;
mod request;
mod usage;
mod usage_scanner;

pub use dialects::LlmApi;
pub use estimator::{DEFAULT_OUTPUT, OutputRule, TokenCount, TokenEstimate, TokenEstimator, TokenRules};
pub use request::{LlmRequest, MAX_LLM_BODY};
pub use usage::{TokenUsage, UsageReader};

/// The most tokens of anything: the largest integer that is safe in all languages.
const MOST: u64 = crate::algorithm::MAX_SAFE_INTEGER;
