//! tower on hyper, without a framework: a limit for every client.

use std::convert::Infallible;
use std::env;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tidegate::Limiter;
use tidegate::http::tower::RateLimitLayer;
use tower::ServiceBuilder;

async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("hello\n".into()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::builder()
        .store(env::var("TIDEGATE_STORE").unwrap_or_else(|_| "memory://".to_owned()))
        .policy("all", "20/minute; 5/3s")?
        .build_async()?;
    let limits = RateLimitLayer::new(&limiter, "all")?;
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    loop {
        let (stream, address) = listener.accept().await?;
        // The layer finds the address of the client in the request's extensions.
        let with_address = move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(address);
            request
        };
        let service = ServiceBuilder::new().map_request(with_address).layer(limits.clone()).service_fn(hello);
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::spawn(connection);
    }
}
