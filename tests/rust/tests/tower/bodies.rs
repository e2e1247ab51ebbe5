//! Holds last until the last byte. Refunds and settlements follow from the response.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tidegate::http::tower::{HeldUnits, RateLimitLayer, RateLimitLayerBuilder, RequestKey};
use tidegate::{AsyncLimiter, Decision, Limiter, Options, Policy};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::{request, router, send, status, text};

fn limiter(policy: &str) -> AsyncLimiter {
    Limiter::builder().policy("p", policy).expect("a policy").build_async().expect("a limiter")
}

fn layer(limiter: &AsyncLimiter) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(limiter).policy("p").key(RequestKey::fixed("k"))
}

async fn left(limiter: &AsyncLimiter) -> u64 {
    limiter.peek("p", "k", 1).await.expect("a peek").remaining()
}

#[tokio::test]
async fn a_hold_lasts_until_the_last_byte() {
    let limiter = limiter("concurrency 1");
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let stream = move || {
        let receiver = receiver.lock().expect("no panic").take();
        async move {
            match receiver {
                Some(receiver) => Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>)),
                None => Body::from("short"),
            }
        }
    };
    let app = Router::new().route("/", get(stream)).layer(layer(&limiter).build().expect("a layer"));
    let response = send(&app, request()).await;
    assert_eq!((response.status().as_u16(), left(&limiter).await), (200, 0));
    // The Decision of one policy has no parts.
    assert_eq!(response.extensions().get::<Decision>().map(|decision| decision.decisions().len()), Some(0));
    assert_eq!(status(&app).await, 429);
    let mut body = response.into_body();
    sender.send(Bytes::from_static(b"one")).await.expect("the body is read");
    assert_eq!(body.frame().await.expect("a frame").expect("no error").into_data().expect("data"), "one");
    assert_eq!(left(&limiter).await, 0);
    drop(sender);
    assert!(body.frame().await.is_none());
    assert_eq!(left(&limiter).await, 1);
    // A body that is dropped gives back as well.
    let dropped = send(&app, request()).await;
    assert_eq!(left(&limiter).await, 0);
    drop(dropped);
    assert_eq!((left(&limiter).await, status(&app).await), (1, 200));
}

#[tokio::test]
async fn a_refused_hold_leaves_nothing_charged() {
    let builder = Limiter::builder().policy("p", "fixed-window 9/hour").expect("a policy");
    let builder = builder.policy("jobs", "concurrency 1; fixed-window 9/hour").expect("a policy");
    let limiter = builder.policy("full", "concurrency 0").expect("a policy").build_async().expect("a limiter");
    let app = router(layer(&limiter).policy("jobs").policy("full").build().expect("a layer"));
    let refused = send(&app, request()).await;
    assert_eq!(refused.status(), 429);
    assert!(text(refused).await.contains(r#""violated-policies":["full"]"#));
    let jobs = limiter.peek("jobs", "k", 1).await.expect("a peek");
    assert_eq!((left(&limiter).await, jobs.limits().map(|limit| limit.remaining).collect::<Vec<_>>()), (9, vec![1, 9]));
}

#[tokio::test]
async fn units_are_given_back_and_settled() {
    let limiter = limiter("fixed-window 100/hour");
    let view = || async {
        let response = Response::builder().status(StatusCode::NOT_MODIFIED).header("tokens", "7");
        response.body(Body::empty()).expect("a response")
    };
    let app =
        |builder: RateLimitLayerBuilder| Router::new().route("/", get(view)).layer(builder.build().expect("a layer"));
    let refunding = app(layer(&limiter).cost(5).refund_when(|response| response.status == StatusCode::NOT_MODIFIED));
    assert_eq!((status(&refunding).await, left(&limiter).await), (304, 100));
    let settling =
        app(layer(&limiter).cost(5).settle(|response| response.headers["tokens"].to_str().ok()?.parse().ok()));
    assert_eq!((status(&settling).await, left(&limiter).await), (304, 93));
    let charging = app(layer(&limiter).cost(5).refund_when(|_| false).settle(|_| None));
    assert_eq!((status(&charging).await, left(&limiter).await), (304, 88));
}

#[tokio::test]
async fn a_shadow_policy_that_would_deny_keeps_no_units_of_others() {
    let options = Options { shadow: true, ..Options::default() };
    let limits = Policy::parse("fixed-window 1/hour").expect("a notation").limits().to_vec();
    let watched = Policy::new(limits, options).and_then(|policy| policy.named("watched")).expect("a policy");
    let limiter = limiter("fixed-window 10/hour");
    limiter.check(&watched, "k").await.expect("a decision");
    let both = || layer(&limiter).policy(&watched).cost(3);
    let refunding = router(both().refund_when(|_| true).build().expect("a layer"));
    assert_eq!((status(&refunding).await, left(&limiter).await), (200, 10));
    let settling = router(both().settle(|_| Some(1)).build().expect("a layer"));
    assert_eq!((status(&settling).await, left(&limiter).await), (200, 9));
    assert_eq!(limiter.peek(&watched, "k", 1).await.expect("a peek").remaining(), 0);
}

#[tokio::test]
async fn units_beside_a_hold_are_given_back() {
    let limiter = limiter("concurrency 2; fixed-window 10/hour");
    let rates = || async {
        let decision = limiter.peek("p", "k", 1).await.expect("a peek");
        decision.limits().map(|limit| limit.remaining).collect::<Vec<_>>()
    };
    let app = router(layer(&limiter).refund_when(|_| true).build().expect("a layer"));
    let response = send(&app, request()).await;
    assert_eq!(rates().await, [1, 10], "the hold lasts, the rate is given back");
    drop(response);
    assert_eq!(rates().await, [2, 10]);
}

#[tokio::test]
async fn the_applications_own_answer_is_sent() {
    let limiter = limiter("fixed-window 1/hour");
    let answer = |_: &http::request::Parts, decision: &tidegate::Decision| {
        let text = format!("{} is full", decision.policy());
        Some(Response::builder().status(420).body(Bytes::from(text)).expect("a response"))
    };
    let app = router(layer(&limiter).on_denied(answer).build().expect("a layer"));
    assert_eq!(status(&app).await, 200);
    let refused = send(&app, request()).await;
    assert_eq!((refused.status().as_u16(), super::field(&refused, "retry-after")), (420, "3600"));
    assert_eq!(text(refused).await, "p is full");
}

#[tokio::test]
async fn an_own_response_without_a_status_is_a_refusal() {
    let answer = |_: &http::request::Parts, _: &tidegate::Decision| Some(Response::new(Bytes::from("slow down")));
    let limiter = limiter("0/hour");
    let app = router(layer(&limiter).on_denied(answer).build().expect("a layer"));
    let refused = send(&app, request()).await;
    assert_eq!((refused.status().as_u16(), text(refused).await.as_str()), (429, "slow down"));
    let mut call = request();
    call.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    assert_eq!(send(&app, call).await.status(), 200, "a call of gRPC says elsewhere that it was refused");
}

#[tokio::test]
async fn an_upgraded_connection_holds_its_unit_as_long_as_its_handler_does() {
    type Kept = std::sync::Arc<std::sync::Mutex<Option<HeldUnits>>>;
    let limiter = limiter("concurrency 1");
    let kept = Kept::default();
    let socket = |keeps: bool| {
        let kept = kept.clone();
        move |axum::Extension(held): axum::Extension<HeldUnits>| async move {
            if keeps {
                *kept.lock().expect("no panic") = Some(held);
            }
            StatusCode::SWITCHING_PROTOCOLS
        }
    };
    let app = |keeps: bool, place: &str| {
        Router::new().route("/", get(socket(keeps))).layer(layer(&limiter).place(place).build().expect("a layer"))
    };
    let careless = app(false, "careless");
    assert_eq!((status(&careless).await, left(&limiter).await), (500, 1), "it would be free of the limit");
    let keeping = app(true, "keeping");
    assert_eq!((status(&keeping).await, left(&limiter).await), (101, 0));
    assert_eq!(status(&keeping).await, 429);
    *kept.lock().expect("no panic") = None;
    assert_eq!((left(&limiter).await, status(&keeping).await), (1, 101));
}

#[tokio::test]
async fn a_request_may_be_settled_when_its_body_has_ended() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    type Tokens = Arc<AtomicU64>;

    let limiter = limiter("fixed-window 100/hour");
    let tokens = Tokens::default();
    let view = {
        let tokens = tokens.clone();
        move || async move { (axum::Extension(tokens), "text") }
    };
    let layer = layer(&limiter).settle_at_end(|head| Some(head.extensions.get::<Tokens>()?.load(Ordering::SeqCst)));
    let app = Router::new().route("/", get(view)).layer(layer.build().expect("a layer"));
    let response = send(&app, request()).await;
    assert_eq!(left(&limiter).await, 99);
    tokens.store(30, Ordering::SeqCst);
    assert_eq!(text(response).await, "text");
    while left(&limiter).await != 70 {
        tokio::task::yield_now().await;
    }
}
