//! Layers over policies with limits on named units, and with calls in classes.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Response, StatusCode};
use tidegate::http::tower::{RateLimitLayer, RateLimitLayerBuilder, RequestKey};
use tidegate::{AsyncLimiter, Cost, ErrorKind, Limiter, Units};

use super::{field, request, send};

const LLM: &str = "fixed-window 10/minute; fixed-window 1000 tokens/minute";

fn limiter() -> AsyncLimiter {
    let builder = Limiter::builder().policy("all", "fixed-window 5/minute").expect("a policy");
    builder.policy("llm", LLM).expect("a policy").build_async().expect("a limiter")
}

fn layer(limiter: &AsyncLimiter) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(limiter).key(RequestKey::fixed("k"))
}

fn app(builder: RateLimitLayerBuilder) -> Router {
    let view = || async {
        let response = Response::builder().status(StatusCode::NOT_MODIFIED);
        response.body(Body::empty()).expect("a response")
    };
    Router::new().route("/", get(view)).layer(builder.build().expect("a layer"))
}

async fn left(limiter: &AsyncLimiter, policy: &str, cost: Cost) -> Vec<u64> {
    let decision = limiter.peek(policy, "k", cost).await.expect("a peek");
    decision.limits().map(|limit| limit.remaining).collect()
}

fn no_tokens() -> Cost {
    Cost::from([("tokens", 0)])
}

#[tokio::test]
async fn each_policy_takes_the_units_that_it_counts() {
    let limiter = limiter();
    let both = || layer(&limiter).policy("all").policy("llm");
    let answered = send(&app(both().cost([("tokens", 300)])), request()).await;
    assert!(field(&answered, "ratelimit-policy").contains(r#""llm-2";q=1000;qu="tokens";w=60"#));
    assert_eq!(
        (left(&limiter, "all", 1.into()).await, left(&limiter, "llm", no_tokens()).await),
        (vec![4], vec![9, 700])
    );
    let by = |_: &http::request::Parts| Units::from([("tokens", 100)]);
    drop(send(&app(both().units_by(by).settle_units(|_| Some([("tokens", 50)].into()))), request()).await);
    assert_eq!(
        (left(&limiter, "all", 1.into()).await, left(&limiter, "llm", no_tokens()).await),
        (vec![3], vec![8, 650])
    );
    drop(send(&app(both().units_by(by).refund_when(|_| true)), request()).await);
    assert_eq!(
        (left(&limiter, "all", 1.into()).await, left(&limiter, "llm", no_tokens()).await),
        (vec![3], vec![8, 650])
    );
    let refused = send(&app(both().cost([("tokens", 651)])), request()).await;
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn units_that_no_request_could_be_asked_are_an_error_of_the_layer() {
    let limiter = limiter();
    let wrong = |builder: RateLimitLayerBuilder| {
        let error = builder.build().expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::CostInvalid, "{error}");
        error.message().to_owned()
    };
    let said = wrong(layer(&limiter).policy("llm"));
    assert!(said.contains("counts tokens") && said.contains(".units_by"), "{said}");
    assert!(wrong(layer(&limiter).policy("all").policy("llm").cost(5)).contains("counts tokens"));
    assert!(
        wrong(layer(&limiter).policy("all").cost([("tokens", 5)]))
            .contains("cost names \"tokens\", which no policy counts")
    );
    wrong(layer(&limiter).policy("all").cost(0));
}

#[tokio::test]
async fn a_class_is_for_the_policies_that_have_classes() {
    let priorities = tidegate::Priorities::new([("batch", "30%")]).expect("classes");
    let options = tidegate::Options { priorities: Some(priorities), ..tidegate::Options::default() };
    let limits = tidegate::Policy::parse("fixed-window 10/minute").expect("a policy").limits().to_vec();
    let policy = tidegate::Policy::new(limits, options).and_then(|policy| policy.named("classed")).expect("a policy");
    let limiter = limiter();
    let app = app(layer(&limiter).policy("all").policy(&policy).priority("batch").cost(2));
    assert_eq!(send(&app, request()).await.status(), 304);
    assert_eq!(send(&app, request()).await.status(), 304);
    limiter.clear("all", "k").await.expect("cleared");
    assert_eq!(send(&app, request()).await.status(), 304);
    assert_eq!(send(&app, request()).await.status(), 429, "3 of 10 stay free");
    assert!(layer(&limiter).policy("all").priority("batch").build().is_err());
    assert!(layer(&limiter).policy(&policy).priority("bach").build().is_err());
}
