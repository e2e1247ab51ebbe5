//! Bodies arrive as they come. At their end a call is settled, and its held units are given back.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tidegate::{Policy, Units};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::clients::{PacedClient, Setup, content};
use super::service::{Service, text};
use super::{SECOND, contract, limiter};

contract! {
    a_hold_ends_with_the_body
    a_body_that_is_given_up_ends_the_call
    units_are_settled_by_the_body
    what_a_refusal_says_in_its_body_is_learned
    a_long_refusal_arrives_whole
    a_wait_in_the_head_is_learned_before_the_body_ends
    a_body_that_comes_late_is_handed_on
}

type Sender = mpsc::UnboundedSender<Result<Bytes, std::io::Error>>;

/// A response that the test sends chunk by chunk.
fn streamed() -> (Sender, impl Fn() -> Response<Body>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = std::sync::Mutex::new(Some(receiver));
    (sender, move || match receiver.lock().expect("no panic").take() {
        Some(receiver) => Response::new(Body::from_stream(UnboundedReceiverStream::new(receiver))),
        None => text("hello"),
    })
}

/// A refusal with a body that the test sends chunk by chunk.
async fn refusing_slowly(wait: Option<&'static str>) -> (Sender, Service) {
    let (sender, respond) = streamed();
    let service = Service::start(move |_, _| {
        let mut response = respond();
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = wait {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(wait));
        }
        response
    });
    (sender, service.await)
}

async fn a_wait_in_the_head_is_learned_before_the_body_ends<C: PacedClient>() {
    let (_sender, service) = refusing_slowly(Some("60")).await;
    let client = C::paced(&limiter(), Setup::of("100/minute")).expect("a client");
    let answered = client.get(&service.url("/")).await.expect("a response");
    assert_eq!(answered.status, 503);
    client.read(&service.url("/")).await.expect_err("it has to wait").denial();
    assert_eq!(service.arrived().len(), 1);
}

async fn a_body_that_comes_late_is_handed_on<C: PacedClient>() {
    let (sender, service) = refusing_slowly(None).await;
    let client = C::paced(&limiter(), Setup { retries: 1, ..Setup::of("100/minute") }).expect("a client");
    sender.send(Ok("{\"retry_after\":".into())).expect("a reader");
    let mut answered = client.get(&service.url("/")).await.expect("a response");
    assert_eq!(answered.status, 503);
    sender.send(Ok(" 60}".into())).expect("a reader");
    drop(sender);
    assert_eq!(content::<C>(&mut answered.body).await, "{\"retry_after\": 60}");
    assert_eq!(service.arrived().len(), 1);
}

async fn a_hold_ends_with_the_body<C: PacedClient>() {
    let (sender, respond) = streamed();
    let service = Service::start(move |_, _| respond()).await;
    let client = C::paced(&limiter(), Setup::of("concurrency 1")).expect("a client");
    let mut answered = client.get(&service.url("/")).await.expect("a response");
    sender.send(Ok("one".into())).expect("a reader");
    assert_eq!(C::chunk(&mut answered.body).await.expect("a chunk"), "one");
    client.read(&service.url("/")).await.expect_err("it is held").denial();
    sender.send(Ok("two".into())).expect("a reader");
    drop(sender);
    assert_eq!(content::<C>(&mut answered.body).await, "two");
    assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 200);
    assert_eq!(service.arrived().len(), 2);
}

async fn a_body_that_is_given_up_ends_the_call<C: PacedClient>() {
    let (_sender, respond) = streamed();
    let service = Service::start(move |_, _| respond()).await;
    let client = C::paced(&limiter(), Setup { timeout: 20 * SECOND, ..Setup::of("concurrency 1") }).expect("a client");
    drop(client.get(&service.url("/")).await.expect("a response"));
    assert_eq!(client.read(&service.url("/")).await.expect("a response").0, 200);
}

async fn units_are_settled_by_the_body<C: PacedClient>() {
    let (service, limiter) = (Service::serving().await, limiter());
    let setup = Setup { tokens: Some(500), settles: true, ..Setup::of("token-bucket 1000 tokens/hour") };
    let client = C::paced(&limiter, setup).expect("a client");
    for _ in 0..3 {
        client.read(&service.url("/")).await.expect("a response");
    }
    let policy =
        Policy::parse("token-bucket 1000 tokens/hour").expect("a policy").paced(SECOND / 20).expect("a margin");
    let asked = tidegate::CheckOptions { units: Units::from([("tokens", 1)]), ..Default::default() };
    let left = limiter.peek_with(&policy, &service.key(), &asked).await.expect("a peek");
    assert_eq!(left.limit() - left.remaining(), 3 * 5);
}

async fn what_a_refusal_says_in_its_body_is_learned<C: PacedClient>() {
    const REFUSAL: &str = r#"{"ok":false,"error_code":429,"parameters":{"retry_after":40}}"#;
    let service = Service::start(|_, _| {
        Response::builder()
            .status(429)
            .header("content-type", "application/json")
            .body(Body::from(REFUSAL))
            .expect("a response")
    });
    let service = service.await;
    let client = C::paced(&limiter(), Setup::of("100/minute")).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response"), (429, REFUSAL.into()));
    let denial = client.read(&service.url("/")).await.expect_err("it is blocked").denial();
    assert!(denial.retry_after() > Some(35 * SECOND));
}

async fn a_long_refusal_arrives_whole<C: PacedClient>() {
    let long: Bytes = vec![b'x'; 300_000].into();
    let sent = long.clone();
    let service = Service::start(move |_, _| {
        let chunks = sent.chunks(1_000).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk)));
        Response::builder()
            .status(503)
            .header("content-type", "application/json")
            .body(Body::from_stream(tokio_stream::iter(chunks.collect::<Vec<_>>())))
            .expect("a response")
    });
    let service = service.await;
    let client = C::paced(&limiter(), Setup::of("concurrency 1")).expect("a client");
    assert_eq!(client.read(&service.url("/")).await.expect("a response"), (503, long));
}
