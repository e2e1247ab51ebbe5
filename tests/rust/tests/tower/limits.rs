//! The calls to the limiter, the answers to the client, and the Decision that the service gets.

use axum::routing::get;
use axum::{Extension, Router};
use http::Method;
use tidegate::http::tower::{RateLimitLayer, RequestKey};
use tidegate::{Decision, Limiter, Policy};
use tidegate_tests::servers::{Kind, Servers};

use super::{app, clock, field, limiter, request, router, send, status, text};

#[tokio::test]
async fn a_refused_request_gets_429_with_fields_and_a_problem() {
    let clock = clock();
    let limiter = Limiter::builder().clock(clock.clone()).build_async().expect("a limiter");
    let app = app(RateLimitLayer::new(&limiter, "fixed-window 2/minute").expect("a layer"), "10.0.0.1");
    let first = send(&app, request()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(field(&first, "ratelimit-policy"), r#""fixed-window 2/minute";q=2;w=60"#);
    assert_eq!(field(&first, "ratelimit"), r#""fixed-window 2/minute";r=1;t=60"#);
    assert_eq!(field(&first, "x-ratelimit-remaining"), "1");
    assert_eq!(first.extensions().get::<Decision>().map(Decision::remaining), Some(1));
    assert_eq!(text(first).await, "hello");
    assert_eq!(status(&app).await, 200);
    let refused = send(&app, request()).await;
    assert_eq!(refused.status(), 429);
    assert_eq!((field(&refused, "retry-after"), field(&refused, "content-type")), ("60", "application/problem+json"));
    assert!(text(refused).await.contains(r#""violated-policies":["fixed-window 2/minute"]"#));
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(status(&app).await, 200);
}

#[tokio::test]
async fn a_handler_is_told_the_decision() {
    let limiter = limiter();
    let layer =
        RateLimitLayer::builder(&limiter).policy("5/minute").key(RequestKey::fixed("all")).build().expect("a layer");
    let left = |Extension(decision): Extension<Decision>| async move { decision.remaining().to_string() };
    let app = Router::new().route("/", get(left)).layer(layer);
    assert_eq!(text(send(&app, request()).await).await, "4");
    assert_eq!(text(send(&app, request()).await).await, "3");
}

#[tokio::test]
async fn several_policies_are_charged_all_or_none() {
    let servers = Servers::start(Kind::Single);
    for store in ["memory://", servers.url()] {
        let builder = Limiter::builder().store(store).timeout(std::time::Duration::from_secs(5));
        let builder = builder.policy("narrow", "fixed-window 1/hour").expect("a policy");
        let limiter =
            builder.policy("wide", "fixed-window 10/hour").expect("a policy").build_async().expect("a limiter");
        let layer =
            RateLimitLayer::builder(&limiter).policy("wide").policy_with_key("narrow", RequestKey::fixed("all"));
        let app = router(layer.key(RequestKey::fixed("someone")).build().expect("a layer"));
        let first = send(&app, request()).await;
        assert_eq!(first.status(), 200);
        assert_eq!(field(&first, "ratelimit-policy"), r#""wide";q=10;w=3600, "narrow";q=1;w=3600"#);
        assert_eq!(first.extensions().get::<Decision>().map(|decision| decision.decisions().len()), Some(2));
        let refused = send(&app, request()).await;
        assert_eq!(refused.status(), 429);
        assert!(text(refused).await.contains(r#""violated-policies":["narrow"]"#));
        assert_eq!(limiter.peek("wide", "someone", 1).await.expect("a peek").remaining(), 9);
    }
}

#[tokio::test]
async fn a_policy_may_follow_from_the_request() {
    let limiter = limiter();
    let tier = |request: &http::request::Parts| match request.headers.get("tier").map(http::HeaderValue::as_bytes) {
        Some(b"gold") => None,
        Some(b"wrong") => Some("no such policy"),
        _ => Some("fixed-window 1/hour"),
    };
    let app =
        router(RateLimitLayer::builder(&limiter).policy_by(tier).key(RequestKey::fixed("k")).build().expect("a layer"));
    let of_tier = |tier: &'static str| {
        let mut request = request();
        request.headers_mut().insert("tier", http::HeaderValue::from_static(tier));
        request
    };
    assert_eq!((status(&app).await, status(&app).await), (200, 429));
    let gold = send(&app, of_tier("gold")).await;
    assert_eq!((gold.status().as_u16(), gold.headers().get("ratelimit")), (200, None));
    // A name that no policy has would limit no request: that is a mistake of the service.
    assert_eq!(send(&app, of_tier("wrong")).await.status(), 500);
}

#[tokio::test]
async fn methods_skip_cost_and_enabled() {
    let limiter = limiter();
    let layer = |place: &str| {
        RateLimitLayer::builder(&limiter).policy("fixed-window 2/hour").key(RequestKey::fixed("k")).place(place)
    };
    let posts = router(layer("posts").methods([Method::POST]).build().expect("a layer"));
    assert_eq!((status(&posts).await, status(&posts).await, status(&posts).await), (200, 200, 200));
    let skipped = router(layer("skipped").skip(|request| request.uri.path() == "/").build().expect("a layer"));
    assert_eq!((status(&skipped).await, status(&skipped).await, status(&skipped).await), (200, 200, 200));
    let dear = router(layer("dear").cost(2).build().expect("a layer"));
    assert_eq!((status(&dear).await, status(&dear).await), (200, 429));
    let by_request =
        router(layer("by request").cost_by(|request| request.uri.path().len() as u64).build().expect("a layer"));
    assert_eq!((status(&by_request).await, status(&by_request).await, status(&by_request).await), (200, 200, 429));
    let off = router(layer("off").cost(2).enabled(false).build().expect("a layer"));
    assert_eq!((status(&off).await, status(&off).await), (200, 200));
}

#[tokio::test]
async fn methods_with_get_limit_head_which_the_same_handler_answers() {
    let layer = RateLimitLayer::builder(&limiter()).policy("fixed-window 2/hour").key(RequestKey::fixed("k"));
    let app = router(layer.methods([Method::GET]).build().expect("a layer"));
    let mut statuses = Vec::new();
    for method in [Method::HEAD, Method::GET, Method::HEAD, Method::GET] {
        let mut asked = request();
        *asked.method_mut() = method;
        statuses.push(send(&app, asked).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_journal_has_the_metadata_of_requests() {
    let policy = Policy::new(
        vec!["9/hour".parse::<Policy>().expect("a policy").limits()[0].clone()],
        tidegate::Options { journal: 5, ..tidegate::Options::default() },
    );
    let limiter = Limiter::builder().named(policy.expect("a policy").named("p").expect("a name")).expect("a policy");
    let limiter = limiter.build_async().expect("a limiter");
    let layer = RateLimitLayer::builder(&limiter).policy("p").key(RequestKey::fixed("k"));
    let app = router(layer.meta(|request| Some(request.uri.path().to_owned())).build().expect("a layer"));
    assert_eq!(status(&app).await, 200);
    let journal = limiter.journal("p", "k").await.expect("a journal");
    assert_eq!(journal[0].meta.as_deref(), Some(b"/".as_slice()));
}

#[tokio::test]
async fn two_layers_announce_both_policies() {
    let limiter = limiter();
    let layer = |policy: &'static str| {
        RateLimitLayer::builder(&limiter).policy(policy).key(RequestKey::fixed("k")).build().expect("a layer")
    };
    let app = router(layer("fixed-window 5/minute")).layer(layer("fixed-window 9/hour"));
    let response = send(&app, request()).await;
    let announced: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(announced.len(), 2);
    assert_eq!(response.headers().get_all("x-ratelimit-limit").iter().count(), 1);
}

#[tokio::test]
async fn a_store_that_fails_is_503_when_the_policy_says_raise() {
    let builder = Limiter::builder().store("redis://127.0.0.1:1/0").on_store_error(tidegate::OnStoreError::Raise);
    let limiter = builder.build_async().expect("a limiter");
    let layer =
        RateLimitLayer::builder(&limiter).policy("5/minute").key(RequestKey::fixed("k")).build().expect("a layer");
    let response = send(&router(layer), request()).await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (503, "1"));
    assert!(text(response).await.contains("temporary-reduced-capacity"));
}
