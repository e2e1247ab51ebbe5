//! tonic: a limit for every client of a gRPC server. A refused call gets RESOURCE_EXHAUSTED.
//!
//!     cargo run -p tidegate-tests --example rust_tonic

use tidegate::Limiter;
use tidegate::http::tower::RateLimitLayer;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        .store(std::env::var("TIDEGATE_STORE").unwrap_or_else(|_| "memory://".to_owned()))
        .policy("calls", "20/minute; 5/3s")?
        .build_async()?;
    let layer = RateLimitLayer::new(&limiter, "calls")?;
    let (_, health) = tonic_health::server::health_reporter();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3001".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    let incoming = TcpListenerStream::new(listener);
    Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming).await?;
    Ok(())
}
