//! axum: a limit for every client, a tighter one for the login, and exports that are held while they stream.
//!
//!     cargo run -p tidegate-tests --example rust_axum
//!     curl -i http://127.0.0.1:3000/

use std::net::SocketAddr;

use axum::routing::{get, post};
use axum::{Extension, Router};
use tidegate::http::tower::{RateLimitLayer, RequestKey};
use tidegate::{AsyncLimiter, Decision, Limiter};

fn app(limiter: &AsyncLimiter) -> tidegate::Result<Router> {
    let client = RequestKey::client_ip_behind(["loopback"])?;
    // One layer asks for all of its policies at once, and a refused request charges none of them.
    let with = |policy| RateLimitLayer::builder(limiter).key(client.clone()).policy("all").policy(policy).build();
    let all = RateLimitLayer::builder(limiter).key(client.clone()).policy("all").build()?;
    Ok(Router::new()
        .route("/", get(left).layer(all))
        .route("/login", post(|| async { "welcome" }).layer(with("login")?))
        .route("/exports", get(|| async { "a,b\n1,2\n" }).layer(with("exports")?)))
}

/// A handler is told what is left.
async fn left(Extension(decision): Extension<Decision>) -> String {
    format!("{} of {} requests are left\n", decision.remaining(), decision.limit())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        .store(std::env::var("TIDEGATE_STORE").unwrap_or_else(|_| "memory://".to_owned()))
        .policy("all", "100/minute")?
        .policy("login", "20/minute; 5/3s")?
        .policy("exports", "concurrency 2 ttl 30s")?
        .build_async()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
