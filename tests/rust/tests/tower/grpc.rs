//! A tonic server with a real client: a refused call has a status of gRPC.

use std::net::SocketAddr;

use tidegate::http::tower::{RateLimitLayer, RequestKey};
use tidegate::{AsyncLimiter, Limiter, OnStoreError};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn serve(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address").connect().await;
    HealthClient::new(channel.expect("a connection"))
}

fn limiter() -> AsyncLimiter {
    Limiter::builder().build_async().expect("a limiter")
}

fn ask() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn a_refused_call_is_resource_exhausted() {
    let limiter = limiter();
    let mut client = serve(RateLimitLayer::new(&limiter, "fixed-window 2/hour").expect("a layer")).await;
    for left in ["1", "0"] {
        let answer = client.check(ask()).await.expect("an answer");
        assert_eq!(answer.metadata().get("x-ratelimit-remaining").expect("a field"), left);
    }
    let status = client.check(ask()).await.expect_err("it is refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("quota-exceeded"), "{status:?}");
    let pushback = status.metadata().get("grpc-retry-pushback-ms").expect("a field");
    let pushback: u64 = pushback.to_str().expect("text").parse().expect("a number");
    assert!((3_590_000..=3_600_000).contains(&pushback), "{pushback}");
    // The address that tonic knows is the key.
    assert_eq!(limiter.peek("fixed-window 2/hour", "127.0.0.1", 1).await.expect("a peek").remaining(), 0);
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable() {
    let builder = Limiter::builder().store("redis://127.0.0.1:1/0").on_store_error(OnStoreError::Raise);
    let limiter = builder.build_async().expect("a limiter");
    let layer =
        RateLimitLayer::builder(&limiter).policy("5/minute").key(RequestKey::fixed("k")).build().expect("a layer");
    let status = serve(layer).await.check(ask()).await.expect_err("no store");
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_stream_holds_until_its_end() {
    let builder = Limiter::builder().policy("streams", "concurrency 1").expect("a policy");
    let limiter = builder.build_async().expect("a limiter");
    let layer =
        RateLimitLayer::builder(&limiter).policy("streams").key(RequestKey::fixed("k")).build().expect("a layer");
    let mut client = serve(layer).await;
    let mut watched = client.watch(ask()).await.expect("a stream").into_inner();
    assert!(watched.message().await.expect("a message").is_some());
    assert_eq!(client.check(ask()).await.expect_err("it is full").code(), Code::ResourceExhausted);
    drop(watched);
    // The server learns of the reset a moment later.
    let mut answer = client.check(ask()).await;
    for _ in 0..1_000 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        answer = client.check(ask()).await;
    }
    answer.expect("the hold was given back");
}
