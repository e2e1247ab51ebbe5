//! Wrong options are errors when a client is made. Functions read requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate::http::Observation;
use tidegate::http::reqwest::Pace;
use tidegate::http::tower::{PaceBuilder, PaceLayer};
use tidegate::{AsyncLimiter, Cost, Limiter, Policy};
use tower::{Layer, Service, ServiceExt};

use super::{SECOND, limiter};

fn refused(limiter: &AsyncLimiter, options: impl FnOnce(PaceBuilder<Pace>) -> PaceBuilder<Pace>) -> (String, String) {
    let error = options(Pace::builder(limiter)).build().expect_err("the options are wrong");
    (error.code().to_owned(), error.message().to_owned())
}

#[tokio::test]
async fn wrong_options_are_errors() {
    let limiter = limiter();
    let (code, message) = refused(&limiter, |options| options.learn(false));
    assert!(code == "config_invalid" && message.contains("nothing is limited"), "{message}");
    let (code, _) = refused(&limiter, |options| options.policy("partner"));
    assert_eq!(code, "policy_unknown");
    let (code, message) = refused(&limiter, |options| options.policy("leaky-bucket 10/s burst 5"));
    assert!(code == "config_invalid" && message.contains("gcra 10/s burst 1"), "{message}");
    let (code, _) = refused(&limiter, |options| options.policy("100 tokens/minute"));
    assert_eq!(code, "cost_invalid");
    let (code, _) = refused(&limiter, |options| options.policy("5/minute").priority("batch"));
    assert_eq!(code, "config_invalid");
    let (code, _) = refused(&limiter, |options| options.policy("5/minute").margin(100 * SECOND));
    assert_eq!(code, "policy_invalid");
    let tokens = Pace::builder(&limiter).policy("100 tokens/minute").cost(Cost::from([("tokens", 5)]));
    tokens.build().expect("a middleware");
}

#[derive(Clone)]
struct Echo;

impl Service<Request<String>> for Echo {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        Box::pin(async { Ok(Response::new(Full::from(request.into_body()))) })
    }
}

#[tokio::test]
async fn functions_read_the_request() {
    let limiter = Limiter::builder().policy("tight", "1/hour").expect("a policy").build_async().expect("a limiter");
    let layer = PaceLayer::builder(&limiter)
        .policy_by(|request| (request.method == http::Method::POST).then_some("tight"))
        .key_by(|request| request.headers["user"].to_str().unwrap_or_default().to_owned())
        .cost_by(|_| 1)
        .prefix("calls:")
        .timeout(SECOND / 100);
    let client = layer.build().expect("a layer").layer(Echo);
    let send = |method: &str, user: &str| {
        let request = Request::builder().method(method).uri("/").header("user", user).body("hello".to_owned());
        client.clone().oneshot(request.expect("a request"))
    };
    let response = send("POST", "alice").await.expect("a response");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "hello");
    assert!(send("POST", "alice").await.is_err());
    assert!(send("POST", "bob").await.is_ok() && send("GET", "alice").await.is_ok());
    let tight = limiter.policy("tight").expect("a policy").paced(SECOND / 20).expect("a margin");
    assert_eq!(limiter.peek(&tight, "calls:alice", 1).await.expect("a peek").remaining(), 0);
}

#[tokio::test]
async fn a_request_without_an_origin_needs_a_key() {
    let client = PaceLayer::new(&limiter(), "5/minute").expect("a layer").layer(Echo);
    let send = |host: Option<&str>| {
        let mut request = Request::get("/path");
        if let Some(host) = host {
            request = request.header("host", host);
        }
        client.clone().oneshot(request.body(String::new()).expect("a request"))
    };
    let error = send(None).await.expect_err("there is no key");
    assert!(error.to_string().contains("names no origin"), "{error}");
    assert!(send(Some("api.example.com")).await.is_ok());
}

/// A client that is busy until the test frees it.
#[derive(Clone, Default)]
struct Busy(Arc<AtomicBool>);

impl Service<Request<String>> for Busy {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.0.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        unreachable!("no turn is used")
    }
}

#[tokio::test]
async fn a_turn_that_is_not_used_goes_back() {
    let limiter = limiter();
    let client = PaceLayer::new(&limiter, "5/minute").expect("a layer").layer(Busy::default());
    let policy = Policy::parse("5/minute").expect("a policy").paced(SECOND / 20).expect("a margin");
    let left = || async { limiter.peek(&policy, "out:http://h", 1).await.expect("a peek").remaining() };
    let request = Request::get("http://h/").body(String::new()).expect("a request");
    let call = tokio::spawn(client.oneshot(request));
    while left().await == 5 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.is_err_and(|error| error.is_cancelled()));
    while left().await != 5 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_turn_that_is_older_than_a_refusal_goes_back() {
    let (limiter, busy) = (limiter(), Busy::default());
    let layer = PaceLayer::builder(&limiter).policy("5/minute").timeout(SECOND).build().expect("a layer");
    let client = layer.layer(busy.clone());
    let policy = Policy::parse("5/minute").expect("a policy").paced(SECOND / 20).expect("a margin");
    let key = "out:http://h";
    let left = || async { limiter.peek(&policy, key, 1).await.expect("a peek").remaining() };
    let request = Request::get("http://h/").body(String::new()).expect("a request");
    let call = tokio::spawn(client.oneshot(request));
    while left().await == 5 {
        tokio::task::yield_now().await;
    }
    let mut refusal = Observation::default();
    refusal.retry_after = Some(60 * SECOND);
    limiter.observe(&policy, key, vec![refusal], None).await.expect("an observation");
    busy.0.store(true, Ordering::Relaxed);
    let error = call.await.expect("no panic").expect_err("its turn has gone back");
    assert!(error.to_string().contains("denies"), "{error}");
    limiter.unblock(&policy, key).await.expect("it is unblocked");
    assert_eq!(left().await, 5);
}
