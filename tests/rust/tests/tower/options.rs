//! Layers that would limit no request, or share a budget by mistake, are errors when they are made.

use tidegate::ErrorKind;
use tidegate::http::tower::{RateLimitLayer, RequestKey};

use super::{limiter, router, status};

#[test]
fn mistakes_are_errors_when_the_layer_is_made() {
    let limiter = limiter();
    let builder = || RateLimitLayer::builder(&limiter);
    let kind = |builder: tidegate::http::tower::RateLimitLayerBuilder| builder.build().expect_err("a mistake").kind();
    assert_eq!(kind(builder()), ErrorKind::ConfigInvalid);
    assert_eq!(kind(builder().policy("5/minut")), ErrorKind::PolicyInvalid);
    assert_eq!(kind(builder().policy("logn")), ErrorKind::PolicyUnknown);
    assert_eq!(kind(builder().policy("5/minute").cost(0)), ErrorKind::CostInvalid);
    assert_eq!(kind(builder().policy("5/minute").methods([])), ErrorKind::ConfigInvalid);
    assert_eq!(kind(builder().policy("5/minute").place("")), ErrorKind::ConfigInvalid);
}

#[tokio::test]
async fn two_layers_never_share_a_notation_unnoticed() {
    let limiter = limiter();
    let layer = |place: &str| {
        let builder = RateLimitLayer::builder(&limiter).policy("fixed-window 1/hour").key(RequestKey::fixed("k"));
        builder.place(place).build()
    };
    let first = layer("first").expect("a layer");
    let second = layer("second").expect("a layer");
    let error = layer("first").expect_err("one budget for two layers");
    assert!(error.message().contains("place("), "{error}");
    let (first, second) = (router(first), router(second));
    assert_eq!((status(&first).await, status(&first).await, status(&second).await), (200, 429, 200));
    drop(first);
    // An application that is made anew, as tests do, has its place again.
    assert!(layer("first").is_ok());
    assert!(RateLimitLayer::new(&super::limiter(), "fixed-window 1/hour").is_ok(), "another limiter");
}
