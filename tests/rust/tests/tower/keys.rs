//! The key of a request, and so the budget that it uses.

use std::net::{IpAddr, SocketAddr};

use axum::extract::connect_info::MockConnectInfo;
use http::{HeaderValue, Request};
use serde_json::Value;
use tidegate::Limiter;
use tidegate::http::tower::{PeerAddress, RateLimitLayer, RequestKey};

use super::{app, limiter, request, router, send, status};

#[tokio::test]
async fn each_address_has_its_own_budget() {
    let limiter = limiter();
    let layer = RateLimitLayer::new(&limiter, "fixed-window 1/hour").expect("a layer");
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|address| app(layer.clone(), address));
    assert_eq!((status(&a).await, status(&a).await, status(&b).await), (200, 429, 200));
    // One household of IPv6 is one client.
    let [c, d] = ["2001:db8::1", "2001:db8::2"].map(|address| app(layer.clone(), address));
    assert_eq!((status(&c).await, status(&d).await), (200, 429));
}

#[tokio::test]
async fn without_an_address_no_request_passes() {
    let limiter = limiter();
    let app = router(RateLimitLayer::new(&limiter, "5/hour").expect("a layer"));
    assert_eq!(status(&app).await, 500);
}

#[tokio::test]
async fn a_server_may_name_the_peer() {
    let limiter = limiter();
    let builder = RateLimitLayer::builder(&limiter).policy("fixed-window 1/hour");
    let app = router(builder.peer(|extensions| extensions.get::<IpAddr>().copied()).build().expect("a layer"));
    let from = |address: &str| {
        let mut request = request();
        request.extensions_mut().insert(address.parse::<IpAddr>().expect("an address"));
        request
    };
    let mut statuses = Vec::new();
    for address in ["10.0.0.1", "10.0.0.1", "10.0.0.2"] {
        statuses.push(send(&app, from(address)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200]);
    assert_eq!(PeerAddress::from(SocketAddr::from(([1, 2, 3, 4], 5))), PeerAddress::Ip(IpAddr::from([1, 2, 3, 4])));
}

#[tokio::test]
async fn forwarded_addresses_count_behind_trusted_proxies_only() {
    let limiter = limiter();
    let forwarded = |address: &'static str| {
        let mut request = request();
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static(address));
        request
    };
    let layer = |place: &str, key: RequestKey| {
        let builder = RateLimitLayer::builder(&limiter).policy("fixed-window 1/hour").place(place);
        app(builder.key(key).build().expect("a layer"), "10.0.0.1")
    };
    let trusting = layer("trusting", RequestKey::client_ip_behind(["10.0.0.0/8"]).expect("a key"));
    assert_eq!(send(&trusting, forwarded("198.51.100.1")).await.status(), 200);
    assert_eq!(send(&trusting, forwarded("198.51.100.2")).await.status(), 200);
    assert_eq!(send(&trusting, forwarded("198.51.100.2")).await.status(), 429);
    let deaf = layer("deaf", RequestKey::client_ip());
    assert_eq!(send(&deaf, forwarded("198.51.100.1")).await.status(), 200);
    assert_eq!(send(&deaf, forwarded("198.51.100.2")).await.status(), 429);
    assert!(RequestKey::client_ip_behind(["0.0.0.0/0"]).is_err() && RequestKey::header("no header").is_err());
}

#[tokio::test]
async fn headers_claims_and_functions() {
    #[derive(Clone)]
    struct User(&'static str);
    let limiter = limiter();
    let layer = |place: &str, key: RequestKey| {
        let builder = RateLimitLayer::builder(&limiter).policy("fixed-window 1/hour").place(place);
        app(builder.key(key).build().expect("a layer"), "10.0.0.1")
    };
    let by_header = layer("header", RequestKey::header("X-API-Key").expect("a key"));
    let with = |value: &'static [u8]| {
        let header = HeaderValue::from_bytes(value).expect("a value");
        Request::builder().header("x-api-key", header).body(axum::body::Body::empty()).expect("a request")
    };
    let mut statuses = Vec::new();
    for value in [b"one".as_slice(), b"one", b"two", b"\xff", b"\xfe", b"\xff"] {
        statuses.push(send(&by_header, with(value)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200, 200, 429]);
    // No header: the address counts.
    assert_eq!((status(&by_header).await, status(&by_header).await), (200, 429));
    // The value itself is no key.
    assert_eq!(limiter.peek("fixed-window 1/hour", "header one", 1).await.expect("a peek").remaining(), 1);
    let by_claim = layer("claim", RequestKey::claim(|User(name): &User| Some(*name)));
    let of_user = |name: &'static str| {
        let mut request = request();
        request.extensions_mut().insert(User(name));
        request
    };
    assert_eq!(send(&by_claim, of_user("alice")).await.status(), 200);
    assert_eq!(send(&by_claim, of_user("bob")).await.status(), 200);
    assert_eq!(send(&by_claim, of_user("bob")).await.status(), 429);
    // The documented name of the budget, and its end.
    limiter.clear("fixed-window 1/hour", "claim bob").await.expect("it is cleared");
    assert_eq!(send(&by_claim, of_user("bob")).await.status(), 200);
    let by_path = layer("path", RequestKey::from_request(|request| Some(request.uri.path().to_owned())));
    assert_eq!((status(&by_path).await, status(&by_path).await), (200, 429));
}

#[tokio::test]
async fn without_its_header_a_key_is_the_layers_own_client_address() {
    let limiter = limiter();
    let from = |address: &'static str| {
        let mut request = request();
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static(address));
        request
    };
    let proxies = || RequestKey::client_ip_behind_hops(1).expect("a number");
    let header = || RequestKey::header("x-api-key").expect("a name");
    let of_the_layer = RateLimitLayer::builder(&limiter).place("a").key(proxies());
    let of_the_layer = of_the_layer.policy_with_key("fixed-window 1/hour", header());
    let of_the_key =
        RateLimitLayer::builder(&limiter).place("b").policy("fixed-window 1/hour").key(header().or(proxies()));
    // If no proxy is trusted, a client cannot choose its address.
    let of_neither = RateLimitLayer::builder(&limiter).place("c").policy("fixed-window 1/hour").key(header());
    for (builder, expected) in
        [(of_the_layer, [200, 200, 429]), (of_the_key, [200, 200, 429]), (of_neither, [200, 429, 429])]
    {
        let app = app(builder.build().expect("a layer"), "10.0.0.1");
        let mut statuses = Vec::new();
        for client in ["198.51.100.1", "198.51.100.2", "198.51.100.2"] {
            statuses.push(send(&app, from(client)).await.status().as_u16());
        }
        assert_eq!(statuses, expected);
    }
    assert!(RequestKey::client_ip_behind_hops(-1).is_err());
}

/// A key of `tests/http/layered-keys.json`. A number after the name of a header gives the hops of its address.
fn made(key: &Value) -> Option<RequestKey> {
    let hops = |count: &Value| RequestKey::client_ip_behind_hops(count.as_i64().expect("a number")).expect("a key");
    let name = || key[1].as_str().expect("a name").to_owned();
    let made = match key[0].as_str()? {
        "client_ip" => match key[1].as_array() {
            None => hops(&key[1]),
            Some(proxies) => RequestKey::client_ip_behind(proxies.iter().filter_map(Value::as_str)).expect("proxies"),
        },
        "claim" => RequestKey::claim(|claim: &String| Some(claim.clone())),
        "fixed" => RequestKey::fixed(name()),
        _ => RequestKey::header(&name()).expect("a key"),
    };
    Some(if key[2].is_i64() { made.or(hops(&key[2])) } else { made })
}

#[tokio::test]
async fn a_key_within_a_layer_and_behind_another_one() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../http/layered-keys.json"));
    let file: Value = serde_json::from_str(&text.expect("readable")).expect("JSON");
    for case in file["cases"].as_array().expect("cases") {
        let request = || {
            let mut request = request();
            for (name, value) in case["headers"].as_object().expect("headers") {
                let name: http::HeaderName = name.parse().expect("a name");
                request.headers_mut().insert(name, value.as_str().expect("a text").parse().expect("a value"));
            }
            request
        };
        let key = case["counted"].as_str().expect("a key").replace("{peer}", "203.0.113.9");
        let (layer, own) = (made(&case["layer"]), made(&case["limit"]));
        // In one layer, and in the second of two layers. There the first one limits no request.
        for nested in [false, true] {
            let limiter = Limiter::builder().policy("p", "100/minute").expect("a policy").build_async().expect("made");
            let builder = || RateLimitLayer::builder(&limiter);
            let keyed = || layer.clone().map_or_else(builder, |key| builder().key(key));
            let app = if nested {
                let inner = own.clone().or_else(|| layer.clone()).map_or_else(builder, |key| builder().key(key));
                let outer = keyed().policy("100/hour").methods([http::Method::POST]);
                router(inner.policy("p").build().expect("a layer")).layer(outer.build().expect("a layer"))
            } else {
                let builder = keyed();
                let builder = match own.clone() {
                    Some(own) => builder.policy_with_key("p", own),
                    None => builder.policy("p"),
                };
                router(builder.build().expect("a layer"))
            };
            let app = app.layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 9], 4_711))));
            assert_eq!(send(&app, request()).await.status(), 200, "{case}");
            let used = limiter.peek("p", &key, 1).await.expect("a peek").remaining();
            assert_eq!(used, 99, "nested: {nested}, {case}");
        }
    }
}
