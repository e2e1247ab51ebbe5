//! Keys as web services make them from requests, and the prefix in the policy file.

mod support;

use tidegate_tests::servers::{Kind, Servers};

use support::{Scratch, run};

#[test]
fn keys_of_headers_and_places_and_the_prefix_of_the_file() {
    let (redis, scratch) = (Servers::start(Kind::Single), Scratch::new("prefix"));
    let (shop, other) = (scratch.file("shop.yaml"), scratch.file("other.yaml"));
    std::fs::write(&shop, "prefix: shop\npolicies: {tenant: 5/minute}").expect("a file");
    std::fs::write(&other, "policies: {tenant: 5/minute}").expect("a file");
    let left = |words: &[&str], file: &str| {
        let ran = run(&[words, &["--store", redis.url(), "--policies", file, "--json"]].concat());
        assert_eq!(ran.error, "", "{words:?}");
        ran.json()["remaining"].clone()
    };
    let named = ["tenant", "--header", "X-API-Key", "k-123"];
    assert_eq!(left(&[&["charge"][..], &named, &["2"]].concat(), &shop), 3);
    assert_eq!(left(&[&["peek"][..], &named].concat(), &shop), 3);
    assert_eq!(left(&["peek", "tenant", "630e2508b5dbb5ad9de24fac6fb2a770"], &shop), 3);
    assert_eq!(left(&["peek", "tenant", "k-123"], &shop), 5, "another key");
    assert_eq!(left(&[&["peek"][..], &named].concat(), &other), 5, "another prefix");
    assert_eq!(left(&[&["peek"][..], &named, &["--prefix", "shop"]].concat(), &other), 3);
    assert_eq!(left(&[&["peek"][..], &named, &["--prefix", "tg"]].concat(), &shop), 5, "the argument comes first");
    assert_eq!(left(&["charge", "5/minute", "a b", "--place", "/x", "--method", "GET", "4"], &shop), 1);
    assert_eq!(left(&["peek", "5/minute", "/x GET \"a b\""], &shop), 1);
    for (words, said) in [
        (&["peek", "tenant", "k", "--place", "/x"][..], "--place is for a notation"),
        (&["peek", "tenant", "k", "--header", "X-API-Key: k-123"], "--header X-API-Key \"$VALUE\""),
    ] {
        let ran = run(&[words, &["--store", redis.url(), "--policies", &shop]].concat());
        assert!(ran.code == 2 && ran.error.contains(said), "{}", ran.error);
    }
}
