//! Calls that go out through clients of Rust. A request waits for its turn, is sent and settled, and may be sent again.
//!
//! `pacing.rs` is the way of a call through any client. A `ClientExchange` covers the differences between clients.

mod call_turn;
mod client_exchange;
mod pace_builder;
mod paced_body;
mod pacing;
mod refused_call;

pub(crate) use call_turn::CallEnd;
pub use call_turn::SettleReader;
pub(crate) use client_exchange::{ClientExchange, MadeFor};
pub use client_exchange::{PacedRequest, PacedResponse};
pub use pace_builder::PaceBuilder;
pub use paced_body::PacedBody;
pub(crate) use pacing::Pacing;
pub use refused_call::RateLimited;
pub(crate) use refused_call::RefusedCall;
