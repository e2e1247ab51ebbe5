//! The layer of tower: in axum routers, on real axum and tonic servers, in memory and on a real Redis.

mod bodies;
mod fields;
mod grpc;
mod keys;
mod limits;
mod options;
mod served;
mod transcripts;
mod units;
mod websockets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::http::tower::RateLimitLayer;
use tidegate::{AsyncLimiter, Limiter, ManualClock};
use tower::ServiceExt;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)))
}

fn limiter() -> AsyncLimiter {
    Limiter::builder().clock(clock()).build_async().expect("a limiter")
}

/// A router with one view behind a layer. All its clients have this address.
fn app(layer: RateLimitLayer, address: &str) -> Router {
    router(layer).layer(MockConnectInfo(SocketAddr::new(address.parse().expect("an address"), 4_711)))
}

/// The same without addresses of clients.
fn router(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.expect("an axum service has no errors")
}

async fn status(app: &Router) -> u16 {
    send(app, request()).await.status().as_u16()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn field<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    response.headers().get(name).unwrap_or_else(|| panic!("{name} is there")).to_str().expect("ASCII")
}
