//! A `tower::Layer` that limits requests, for axum, tonic and every other service of tower. [`PaceLayer`] paces the
//! calls of clients.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # fn example() -> tidegate::Result<axum::Router> {
//! use tidegate::Limiter;
//! use tidegate::http::tower::RateLimitLayer;
//!
//! let limiter = Limiter::builder().store("memory://").build_async()?;
//! let app = axum::Router::new()
//!     .route("/", axum::routing::get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(&limiter, "gcra 2/s burst 5")?);
//! # Ok(app)
//! # }
//! ```
//!
//! - Each client address has its own budget, unless you give a [`RequestKey`]. axum must know the address: serve the
//!   application with `into_make_service_with_connect_info::<SocketAddr>()`. The features `axum` and `tonic` read it
//!   from these frameworks. Any other server names it with [`RateLimitLayerBuilder::peer`].
//! - A refused request gets 429 with the fields of the limits and a problem document, or 503 when the store failed. A gRPC
//!   request gets the status `RESOURCE_EXHAUSTED` or `UNAVAILABLE`.
//! - The [`Decision`](crate::Decision) is an extension of the request and of the response.
//! - Units of a `concurrency` limit are held until the last byte of the response's body was sent, or as long as the handler of a
//!   websocket keeps a copy of [`HeldUnits`]. A request that a `leaky-bucket` delays waits before it reaches the service.
//! - A notation counts for the layer that it was given to. If a limiter has two layers with the same notation, each
//!   needs its own name: [`RateLimitLayerBuilder::place`].

mod admission;
mod body;
mod builder;
mod notation_place;
mod pace_layer;
mod peer;
mod refusal;
mod request_key;
mod request_limits;
mod service;

pub use crate::http::outgoing::{PaceBuilder, PacedBody, PacedRequest, PacedResponse, RateLimited, SettleReader};
pub use body::{HeldUnits, LimitedBody};
pub use builder::RateLimitLayerBuilder;
pub use pace_layer::{CopyBody, PaceLayer, Paced, SentAgain, SentOnce};
pub use peer::PeerAddress;
pub use request_key::RequestKey;
pub use service::{RateLimit, RateLimitLayer};
