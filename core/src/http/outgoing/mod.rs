//! Calls that go out, for clients of Rust: a request waits for its turn, is sent, observed and settled, and perhaps sent again.
//!
//! `pacing.rs` is the way of a call, whatever client makes it. What differs between clients is an `Exchange`.

mod exchange;
mod pace_builder;
mod paced_body;
mod pacing;
mod refused_call;
mod turn;

pub(crate) use exchange::Exchange;
pub use exchange::{PacedRequest, PacedResponse};
pub use pace_builder::PaceBuilder;
pub use paced_body::PacedBody;
pub(crate) use pacing::Pacing;
pub use refused_call::RateLimited;
pub(crate) use refused_call::RefusedCall;
pub(crate) use turn::CallEnd;
pub use turn::SettleReader;
