//! tonic: a limit for every client of a gRPC server. A refused call gets RESOURCE_EXHAUSTED.

use std::env;

use tidegate::Limiter;
use tidegate::http::tower::RateLimitLayer;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        .store(env::var("TIDEGATE_STORE").unwrap_or_else(|_| "memory://".to_owned()))
        .policy("calls", "20/minute; 5/3s")?
        .build_async()?;
    let (_, health) = tonic_health::server::health_reporter();
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    Server::builder()
        .layer(RateLimitLayer::new(&limiter, "calls")?)
        .add_service(health) // yours
        .serve(format!("127.0.0.1:{port}").parse()?)
        .await?;
    Ok(())
}
