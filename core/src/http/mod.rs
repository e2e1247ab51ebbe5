//! The rules of HTTP, once for every framework and language: what an answer says about a Decision, and who asks.
//!
//! Pure functions of what they are given; requests and responses belong to the adapters.

mod client;
mod headers;
mod identity;
mod problem;

pub use client::{ClientIp, DEFAULT_IPV6_PREFIX, Trusted};
pub use headers::{Announced, Announcement, Headers, NAMES, announcement, headers, headers_of_all};
pub use identity::{anonymous, hashed};
pub use problem::{MEDIA_TYPE, Refusal, problem};

use std::time::Duration;

use crate::decision::Decision;

/// The status of the answer: 200 when it may go, 429 when a quota is exceeded, 503 when the store is missing and the
/// policy says `closed`.
#[must_use]
pub fn status(decision: &Decision) -> u16 {
    match (decision.allowed(), decision.unavailable()) {
        (true, _) => 200,
        (false, false) => 429,
        (false, true) => 503,
    }
}

/// How long a refused client is told to wait, in whole seconds, never less than it must; `None` is for ever.
///
/// A missing store is mostly back within a second, and nobody knows better.
#[must_use]
pub fn retry_after(decision: &Decision) -> Option<u64> {
    if decision.unavailable() {
        return Some(decision.retry_after().map_or(1, seconds).max(1));
    }
    decision.retry_after().map(|wait| seconds(wait).max(u64::from(!decision.allowed())))
}

/// Whole seconds, rounded up: what is true of a moment must be true of the second that is named.
fn seconds(length: Duration) -> u64 {
    length.as_secs() + u64::from(length.subsec_nanos() > 0)
}
