//! A server that may evict keys would forget limits. The limiter finds out, and warns once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tidegate::{Builder, Limiter, OnStoreError};
use tidegate_tests::reply_proxy::ReplyProxy;
use tidegate_tests::servers::{Kind, Servers};

/// The warnings of a limiter.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn builder(&self, url: &str) -> Builder {
        let told = Arc::clone(&self.0);
        let listener =
            move |sentence: &str| told.lock().unwrap_or_else(PoisonError::into_inner).push(sentence.to_owned());
        let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).on_warning(Arc::new(listener));
        builder.on_store_error(OnStoreError::Raise)
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tokio::test]
async fn a_server_that_may_evict_keys_is_named_once() {
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"] {
        let redis = Servers::start_with(Kind::Single, json!({"config": {"maxmemory-policy": policy}}));
        let warnings = Warnings::default();
        let limiter = warnings.builder(redis.url()).build().expect("a limiter");
        assert_eq!(warnings.all(), [""; 0], "nothing is connected yet");
        for _ in 0..3 {
            limiter.check("5/minute", "k").expect("a decision");
        }
        limiter.ping().expect("a server");
        let told = warnings.all();
        assert_eq!(told.len(), 1, "{told:?}");
        for part in [policy, "noeviction", "127.0.0.1"] {
            assert!(told[0].contains(part), "{told:?}");
        }
        let warnings = Warnings::default();
        let limiter = warnings.builder(redis.url()).build_async().expect("a limiter");
        for _ in 0..3 {
            limiter.check("5/minute", "k").await.expect("a decision");
        }
        assert_eq!(warnings.all().len(), 1);
    }
}

#[tokio::test]
async fn a_ping_finds_out_what_was_changed() {
    let redis = Servers::start(Kind::Single);
    let warnings = Warnings::default();
    let limiter = warnings.builder(redis.url()).build_async().expect("a limiter");
    limiter.check("5/minute", "k").await.expect("a decision");
    limiter.ping().await.expect("a server");
    assert_eq!(warnings.all(), [""; 0], "it does not evict");
    let _ = redis.command(0, &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    limiter.ping().await.expect("a server");
    assert_eq!(warnings.all().len(), 1);
    limiter.ping().await.expect("a server");
    assert_eq!(warnings.all().len(), 1);
}

#[test]
fn sentinels_and_clusters_are_asked_too() {
    for kind in [Kind::Sentinel, Kind::Cluster] {
        let redis = Servers::start_with(kind, json!({"config": {"maxmemory-policy": "allkeys-lru"}}));
        let warnings = Warnings::default();
        let limiter = warnings.builder(redis.url()).build().expect("a limiter");
        limiter.check("5/minute", "k").expect("a decision");
        assert_eq!(warnings.all().len(), 1, "{:?}", warnings.all());
    }
}

#[test]
fn what_a_server_says_acts_on_no_terminal() {
    let redis = Servers::start_with(Kind::Single, json!({"config": {"maxmemory-policy": "allkeys-lru"}}));
    let lying = ReplyProxy::to(redis.port(0), "allkeys-lru".to_owned(), "\u{1b}[31mks-lru".to_owned());
    let warnings = Warnings::default();
    let limiter = warnings.builder(&format!("redis://127.0.0.1:{}", lying.port())).build().expect("a limiter");
    limiter.check("5/minute", "k").expect("a decision");
    let told = warnings.all();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("\\u{1b}[31mks-lru") && !told[0].contains('\u{1b}'), "{told:?}");
}

#[test]
fn a_user_who_may_not_ask_is_served() {
    let least = "on >hunter2 resetkeys ~tg* -@all +evalsha +eval +get +set +del +time +ping";
    let options = json!({"users": {"app": least}, "config": {"maxmemory-policy": "allkeys-lru"}});
    let redis = Servers::start_with(Kind::Single, options);
    let url = format!("redis://app:hunter2@127.0.0.1:{}/0", redis.port(0));
    let warnings = Warnings::default();
    let limiter = warnings.builder(&url).build().expect("a limiter");
    assert!(limiter.check("5/minute", "k").expect("a decision").allowed());
    limiter.ping().expect("a server");
    assert_eq!(warnings.all(), [""; 0], "it cannot know");
}
