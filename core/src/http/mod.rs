//! The rules of HTTP, once for every framework and language: the response to a Decision, the client that a request
//! comes from, and the limits in the response of another service.
//!
//! Pure functions of their arguments. Requests and responses belong to the adapters.

mod client;
mod field_names;
mod headers;
mod identity;
mod ietf;
mod llm;
#[cfg(feature = "tower")]
mod named_policy;
mod openapi;
pub(crate) mod options;
#[cfg(feature = "tower")]
mod outgoing;
mod problem;
#[cfg(feature = "reqwest-middleware")]
pub mod reqwest;
mod responses;
#[cfg(feature = "tower")]
mod settling;
#[cfg(feature = "tower")]
pub mod tower;

pub use client::{ClientIp, DEFAULT_IPV6_PREFIX, Peer, Trusted};
pub use headers::{
    Announced, Announcement, Headers, NAMES, announcement, headers, headers_of_all, headers_of_route, more_after,
};
pub use identity::{anonymous, hashed, named, placed_key};
pub use llm::{
    DEFAULT_OUTPUT, LlmApi, LlmRequest, MAX_LLM_BODY, OutputRule, TokenCount, TokenEstimate, TokenEstimator,
    TokenRules, TokenUsage, UsageReader,
};
pub use openapi::openapi_response;
pub use problem::{MEDIA_TYPE, Refusal, problem};
pub(crate) use responses::BELIEVABLE;
pub use responses::{
    MAX_BODY, MAX_LEARNED_WAIT, MAX_OBSERVATIONS, Observation, ObservationScope, ObservedResponse, ResponseReader,
};

use std::time::Duration;

use crate::decision::Decision;

/// The status of the response: 200 if the request is allowed, 429 if a quota is exceeded, 503 if the store failed and
/// `on_store_error` is `closed`.
#[must_use]
pub fn status(decision: &Decision) -> u16 {
    match (decision.allowed(), decision.unavailable()) {
        (true, _) => 200,
        (false, false) => 429,
        (false, true) => 503,
    }
}

/// The whole seconds that a refused client must wait, rounded up. `None` is for ever.
///
/// A store that failed is mostly back within a second, and there is no better estimate.
#[must_use]
pub fn retry_after(decision: &Decision) -> Option<u64> {
    if decision.unavailable() {
        return Some(decision.retry_after().map_or(1, seconds).max(1));
    }
    decision.retry_after().map(|wait| seconds(wait).max(u64::from(!decision.allowed())))
}

/// Whole seconds, rounded up: a client that waits this long must have waited long enough.
fn seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}
