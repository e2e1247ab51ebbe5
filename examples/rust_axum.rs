//! axum: a limit for every client, and a tighter one for the login.

use std::env;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tidegate::Limiter;
use tidegate::http::tower::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        .store(env::var("TIDEGATE_STORE").unwrap_or_else(|_| "memory://".to_owned()))
        .policy("all", "100/minute")?
        .policy("login", "20/minute; 5/10s")?
        .build_async()?;
    let all = RateLimitLayer::new(&limiter, "all")?;
    // One layer asks for both in one round trip: what one of them refuses costs nothing of the other.
    let login = RateLimitLayer::builder(&limiter).policy("all").policy("login").build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }).route_layer(all))
        .route("/login", post(|| async { "welcome\n" }).route_layer(login));

    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    // The layer needs the address of the client.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
