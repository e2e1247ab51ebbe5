//! A call is sent again after a 429 or 503 that names a wait, if that does no harm.

use bytes::Bytes;
use http::{Method, Request};
use tidegate::Policy;

use super::clients::{PacedClient, Setup};
use super::service::{Service, answer, text};
use super::{SECOND, contract, limiter};

contract! {
    a_call_is_sent_again_after_the_wait
    only_what_does_no_harm_is_sent_again
    a_wait_beyond_the_timeout_is_not_waited_for
    each_attempt_is_charged
}

/// A service that refuses the first calls.
async fn refusing(calls: usize, status: u16, wait_ms: &'static str) -> Service {
    Service::start(
        move |number, _| {
            if number > calls { text("hello") } else { answer(status, [("retry-after-ms", wait_ms)]) }
        },
    )
    .await
}

fn setup(retries: u32) -> Setup {
    Setup { retries, timeout: 20 * SECOND, ..Setup::of("100/minute") }
}

fn put(method: Method, url: &str, key: Option<&str>) -> Request<Bytes> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body("content".into()).expect("a request")
}

async fn a_call_is_sent_again_after_the_wait<C: PacedClient>() {
    for status in [429, 503] {
        let service = refusing(2, status, "60").await;
        let client = C::paced(&limiter(), setup(2)).expect("a client");
        let began = std::time::Instant::now();
        let answered = client.send(put(Method::PUT, &service.url("/"), None)).await.expect("a response");
        assert_eq!(answered.status, 200);
        assert!(began.elapsed() >= std::time::Duration::from_millis(120), "{:?}", began.elapsed());
        let bodies: Vec<_> = service.arrived().into_iter().map(|arrived| arrived.body).collect();
        assert_eq!(bodies, ["content"; 3]);
    }
}

async fn only_what_does_no_harm_is_sent_again<C: PacedClient>() {
    for (method, key, sent) in [(Method::POST, None, 1), (Method::POST, Some("a"), 2), (Method::PATCH, None, 1)] {
        let service = refusing(1, 429, "20").await;
        let client = C::paced(&limiter(), setup(1)).expect("a client");
        client.send(put(method, &service.url("/"), key)).await.expect("a response");
        assert_eq!(service.arrived().len(), sent);
    }
    let service = Service::start(|_, _| answer(500, [("retry-after-ms", "20")])).await;
    let client = C::paced(&limiter(), setup(1)).expect("a client");
    assert_eq!(client.get(&service.url("/")).await.expect("a response").status, 500);
    assert_eq!(service.arrived().len(), 1);
}

async fn a_wait_beyond_the_timeout_is_not_waited_for<C: PacedClient>() {
    let service = refusing(1, 429, "60000").await;
    let client = C::paced(&limiter(), setup(1)).expect("a client");
    assert_eq!(client.get(&service.url("/")).await.expect("a response").status, 429);
    assert_eq!(service.arrived().len(), 1);
}

async fn each_attempt_is_charged<C: PacedClient>() {
    let (service, limiter) = (refusing(2, 429, "20").await, limiter());
    let client = C::paced(&limiter, Setup { learn: false, ..setup(5) }).expect("a client");
    assert_eq!(client.get(&service.url("/")).await.expect("a response").status, 200);
    let policy = Policy::parse("100/minute").expect("a policy").paced(SECOND / 20).expect("a margin");
    assert_eq!(limiter.peek(&policy, &service.key(), 1).await.expect("a peek").remaining(), 97);
}
