//! The fields that announce limits, as an independent parser of structured fields reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use sfv::{BareItem, List, ListEntry, Parser};
use tidegate::http::tower::{RateLimitLayer, RequestKey};
use tidegate::{AsyncLimiter, Limiter, OnStoreError};

use super::{app, clock, field, request, router, send, text};

const POLICIES: [(&str, &str); 3] =
    [("login", "fixed-window 20/minute; fixed-window 2/3s"), ("slots", "concurrency 1"), ("all", "gcra 20/minute")];
const TEXT: &str = r#""login-1";q=20;w=60, "login-2";q=2;w=3, "slots";q=1;qu="concurrent-requests", "all";q=20;w=60"#;

/// The items of a field by name, in order, each with its whole numbers.
fn items(response: &Response<Body>, name: &str) -> Vec<(String, BTreeMap<String, i64>)> {
    let list: List = Parser::new(field(response, name)).parse().expect("a list");
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("no string item") };
        let number = |(key, value): (&sfv::Key, &BareItem)| value.as_integer().map(|n| (key.to_string(), n.into()));
        (name.as_str().to_owned(), item.params.iter().filter_map(number).collect())
    };
    list.iter().map(item).collect()
}

fn names(response: &Response<Body>, name: &str) -> Vec<String> {
    items(response, name).into_iter().map(|(name, _)| name).collect()
}

/// The numbers of a limit in `RateLimit`. Its items name those of `RateLimit-Policy`, the same on every response.
fn said(response: &Response<Body>, limit: &str) -> BTreeMap<String, i64> {
    assert_eq!(field(response, "ratelimit-policy"), TEXT);
    let policies = names(response, "ratelimit-policy");
    assert!(names(response, "ratelimit").iter().all(|name| policies.contains(name)));
    items(response, "ratelimit").into_iter().find(|(name, _)| name == limit).expect("it binds").1
}

fn numbers<const N: usize>(numbers: [(&str, i64); N]) -> BTreeMap<String, i64> {
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

fn router_of(limiter: &AsyncLimiter) -> axum::Router {
    let layer = POLICIES.iter().fold(RateLimitLayer::builder(limiter), |layer, (name, _)| layer.policy(*name));
    router(layer.key(RequestKey::fixed("k")).build().expect("a layer"))
}

fn builder() -> tidegate::Builder {
    let add = |builder: tidegate::Builder, (name, text): &(&str, &str)| builder.policy(*name, text).expect("a policy");
    POLICIES.iter().fold(Limiter::builder(), add)
}

#[tokio::test]
async fn every_response_of_a_route_announces_the_same_policies() {
    let clock = clock();
    let limiter = builder().clock(clock.clone()).build_async().expect("a limiter");
    let app = router_of(&limiter);
    let first = send(&app, request()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(said(&first, "login-2"), numbers([("r", 1), ("t", 3)]));
    assert_eq!(said(&first, "all"), numbers([("r", 19), ("t", 3)]));
    drop(text(first).await);
    let held = limiter.hold("slots", "k", 1).await.expect("an answer");
    // The others are not asked, and still announced.
    let full = send(&app, request()).await;
    assert_eq!((full.status().as_u16(), said(&full, "slots")), (429, numbers([("r", 0)])));
    assert!(text(full).await.contains(r#""violated-policies":["slots"]"#));
    drop(held);
    while limiter.peek("slots", "k", 1).await.expect("a peek").remaining() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(text(send(&app, request()).await).await);
    while limiter.peek("slots", "k", 1).await.expect("a peek").remaining() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let refused = send(&app, request()).await;
    assert_eq!((refused.status().as_u16(), said(&refused, "login-2")), (429, numbers([("r", 0), ("t", 3)])));
    assert!(text(refused).await.contains(r#""violated-policies":["login-2"]"#));
}

#[tokio::test]
async fn t_is_the_time_until_more_units() {
    let clock = clock();
    let limiter = builder().clock(clock).build_async().expect("a limiter");
    let app = app(RateLimitLayer::new(&limiter, "all").expect("a layer"), "10.0.0.1");
    for left in (0..20).rev() {
        let response = send(&app, request()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(items(&response, "ratelimit"), [("all".to_owned(), numbers([("r", left), ("t", 3)]))]);
    }
}

#[tokio::test]
async fn a_missing_store_leaves_the_policies() {
    for on_store_error in [OnStoreError::Raise, OnStoreError::Closed] {
        let builder = builder().store("redis://127.0.0.1:1/0").on_store_error(on_store_error);
        let limiter = builder.build_async().expect("a limiter");
        let layer = RateLimitLayer::builder(&limiter).policy("login").policy("all").key(RequestKey::fixed("k"));
        let response = send(&router(layer.build().expect("a layer")), request()).await;
        assert_eq!(response.status(), 503);
        assert_eq!(names(&response, "ratelimit-policy"), ["login-1", "login-2", "all"]);
        assert!(response.headers().get("ratelimit").is_none(), "the store that knows is missing");
        assert!(text(response).await.contains(r#""violated-policies":["login-1","login-2","all"]"#));
    }
}
