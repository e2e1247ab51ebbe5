//! A store that does not answer is called no more until it answers again.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate::{ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::{ChangeLog, builder, soon};

fn source_of_a_check(limiter: &Limiter) -> Source {
    limiter.check("1000000/hour", "k").expect("a decision").source()
}

#[test]
fn after_three_failures_in_a_row_no_call_waits() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let limiter = changes.record(builder(server.url())).on_store_error(OnStoreError::Raise).build().expect("a limiter");
    soon("the server answers", || limiter.ping().is_ok());
    server.stop(0);
    let check = || limiter.check("5/hour", "k").expect_err("it is silent");
    for _ in 0..3 {
        assert_eq!(limiter.counters().withheld, 0);
        assert_eq!(check().kind(), ErrorKind::StoreTimeout);
    }
    let asked = limiter.counters().asked;
    let began = Instant::now();
    for _ in 0..1_000 {
        let error = check();
        assert_eq!(error.kind(), ErrorKind::StoreTimeout);
        assert!(error.message().contains("did not answer") && error.message().contains("until it answers"), "{error}");
    }
    // A thousand calls that waited would take minutes.
    assert!(began.elapsed() < Duration::from_secs(10));
    let counters = limiter.counters();
    assert_eq!((counters.asked, counters.withheld, counters.lost), (asked, 1_000, 1));
    assert_eq!((counters.store_timeout, counters.store_unavailable), (3, 0));
    soon("the change is reported", || changes.states() == ["lost"]);
    let change = changes.all().remove(0);
    assert!(change.sentence.contains("did not answer"), "{change:?}");
    assert!(change.since <= SystemTime::now());
}

#[test]
fn an_answer_in_between_restarts_the_count() {
    let server = Servers::start(Kind::Single);
    let proxy = Proxy::to(server.port(0));
    let limiter = builder(&format!("redis://127.0.0.1:{}", proxy.port())).build().expect("a limiter");
    for _ in 0..2 {
        proxy.set(Condition::DropReplies);
        let sources = [source_of_a_check(&limiter), source_of_a_check(&limiter)];
        assert_eq!(sources, [Source::Fallback; 2]);
        proxy.set(Condition::Healthy);
        soon("it answers", || source_of_a_check(&limiter) == Source::Store);
    }
    let counters = limiter.counters();
    assert_eq!(counters.lost, 0, "{counters:?}");
}

/// A server so far away that a probe with a short timeout never reaches it.
#[test]
fn a_server_far_away_is_found_too() {
    let server = Servers::start(Kind::Single);
    let proxy = Proxy::to(server.port(0));
    let limiter = builder(&format!("redis://127.0.0.1:{}", proxy.port())).timeout(Duration::from_secs(5));
    let limiter = limiter.build().expect("a limiter");
    proxy.set(Condition::Refuse);
    soon("it is lost", || {
        source_of_a_check(&limiter);
        limiter.counters().lost == 1
    });
    proxy.set(Condition::Slow(Duration::from_millis(300)));
    soon("it answers", || source_of_a_check(&limiter) == Source::Store);
}

#[test]
fn no_password_is_reported() {
    let changes = ChangeLog::default();
    let builder = changes.record(builder("redis://user:hunter2@127.0.0.1:1/0"));
    assert!(!format!("{builder:?}").contains("hunter2"));
    let limiter = builder.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let errors: Vec<_> = (0..5).map(|_| limiter.check("5/hour", "k").expect_err("the server is gone")).collect();
    soon("the change is reported", || !changes.all().is_empty());
    let text = format!("{errors:?} {:?}", changes.all());
    assert!(text.contains("cannot be reached") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_listener_may_panic_and_may_call_the_limiter() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let known: Arc<std::sync::OnceLock<Limiter>> = Arc::default();
    let (limiter_of_listener, changes_of_listener) = (Arc::clone(&known), changes.clone());
    let limiter = builder(server.url()).on_change(Arc::new(move |change| {
        changes_of_listener.0.lock().expect("no panic").push(change.clone());
        if let Some(limiter) = limiter_of_listener.get() {
            source_of_a_check(limiter);
        }
        panic!("a panic of the listener");
    }));
    let limiter = limiter.build().expect("a limiter");
    assert!(known.set(limiter.clone()).is_ok());
    server.kill(0);
    soon("it is lost", || {
        source_of_a_check(&limiter);
        changes.states() == ["lost"]
    });
    server.start_again(0);
    soon("it is back", || source_of_a_check(&limiter) == Source::Store);
    soon("the change is reported", || changes.states() == ["lost", "back"]);
}
