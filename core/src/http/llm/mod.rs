//! What a call of a large language model costs
//! ([ADR 0040](https://github.com/tidegate/tidegate/blob/main/docs/adr/0040-what-a-call-of-an-llm-costs.md)).
//!
//! `dialects.rs` is the table of the requests that are read, and `request.rs` reads them. `usage.rs` reads what a response says that
//! was used, with `usage_scanner.rs`. `estimator.rs` makes numbers of tokens of both, with what `learned.rs` keeps of each model.

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

/// The most tokens of anything: the largest number of which all languages know the next one.
const MOST: u64 = crate::algorithm::MAX_SAFE_INTEGER;
