//! Checks that wait at the same moment become one script call; an error of one entry concerns that entry alone.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate::{AsyncLimiter, ErrorKind, Limiter, ManualClock, OnStoreError};
use tidegate_tests::history::text_of;
use tidegate_tests::servers::{Kind, Servers};

fn tasks(redis: &Servers) -> AsyncLimiter {
    let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10));
    builder.on_store_error(OnStoreError::Raise).deny_cache(Duration::ZERO).build_async().expect("a limiter")
}

#[tokio::test]
async fn many_checks_are_few_calls_and_each_key_is_read_and_written_once() {
    let redis = Servers::start(Kind::Single);
    let limiter = tasks(&redis);
    limiter.check("1000/minute", "warm").await.expect("a decision");
    let _ = redis.command(0, &["CONFIG", "RESETSTAT"]);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.check("1000/minute", ["a", "b"][number % 2]).await });
    }
    while let Some(done) = waiting.join_next().await {
        assert!(done.expect("a task ends").expect("a decision").allowed());
    }
    let (scripts, reads, writes) = (redis.calls(0, "evalsha"), redis.calls(0, "get"), redis.calls(0, "set"));
    // A call takes what waits when it is sent: on a busy machine that is less than the 64 that it may take.
    assert!(scripts <= 100, "1,000 checks in {scripts} calls");
    assert!(reads <= 2 * scripts && writes <= 2 * scripts, "{reads} reads and {writes} writes in {scripts} calls");
}

#[tokio::test]
async fn checks_of_a_log_do_not_cut_the_batches_of_other_policies() {
    let redis = Servers::start(Kind::Single);
    let limiter = tasks(&redis);
    let policy = |number: usize| if number.is_multiple_of(4) { "sliding-log 1000/minute" } else { "1000/minute" };
    limiter.check(policy(1), "warm").await.expect("a decision");
    let _ = redis.command(0, &["CONFIG", "RESETSTAT"]);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.check(policy(number), "key").await });
    }
    while let Some(done) = waiting.join_next().await {
        assert!(done.expect("a task ends").expect("a decision").allowed());
    }
    let scripts = redis.calls(0, "evalsha");
    // The keys of a log have companions, which the keys of a call have together or not at all. In the order in which they came, no
    // more than three checks could travel together.
    assert!(scripts <= 200, "1,000 checks in {scripts} calls");
}

#[tokio::test]
async fn one_bad_entry_fails_alone() {
    let redis = Servers::start(Kind::Single);
    let limiter = tasks(&redis);
    limiter.check("5/minute", "bad").await.expect("a decision");
    let keys = redis.command(0, &["KEYS", "*"]);
    assert_eq!(keys.as_array().map(Vec::len), Some(1));
    // The name of the key is not text, so the server itself replaces the value.
    let swap = "local key = redis.call('KEYS', '*')[1] redis.call('DEL', key) redis.call('RPUSH', key, 'x') return 1";
    assert_eq!(redis.command(0, &["EVAL", swap, "0"]), Value::from(1));
    for policy in ["5/minute", "5/minute; gcra 100/s; sliding-log 9/s"] {
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..200 {
            let limiter = limiter.clone();
            let key = if number == 77 { "bad".to_owned() } else { format!("good {number}") };
            waiting.spawn(async move { (number, limiter.check(policy, &key).await) });
        }
        while let Some(done) = waiting.join_next().await {
            match done.expect("a task ends") {
                (77, Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::StoreRejected);
                    assert!(error.message().contains("WRONGTYPE"), "{error}");
                }
                (77, Ok(_)) => assert_ne!(policy, "5/minute", "a list is no state"),
                (_, other) => assert!(other.expect("a neighbour's decision").allowed()),
            }
        }
    }
}

#[test]
fn a_check_is_one_round_trip_also_after_the_scripts_are_flushed() {
    let redis = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let limiter = limiter.build().expect("a limiter");
    let policy = "20/minute; gcra 100/s burst 200; calendar-window 1000/day; sliding-counter 50/minute";
    for key in ["a", "b"] {
        let _ = redis.command(0, &["SCRIPT", "FLUSH"]);
        assert!(limiter.check(policy, key).expect("a decision").allowed(), "the script is sent again by itself");
    }
    let _ = redis.command(0, &["CONFIG", "RESETSTAT"]);
    for _ in 0..30 {
        limiter.check(policy, "a").expect("a decision");
    }
    assert_eq!((redis.calls(0, "evalsha"), redis.calls(0, "eval"), redis.calls(0, "get")), (30, 0, 30));
    assert_eq!(redis.calls(0, "set"), 19, "a denial writes nothing");
}

#[tokio::test]
async fn a_server_without_the_script_is_asked_by_digest_twice_before_the_script_is_sent() {
    let redis = Servers::start(Kind::Single);
    let builder = || Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    let (blocking, tasks) = (builder().build().expect("a limiter"), builder().build_async().expect("a limiter"));
    let forget = || {
        let _ = (redis.command(0, &["SCRIPT", "FLUSH"]), redis.command(0, &["CONFIG", "RESETSTAT"]));
    };
    // Meanwhile another process may have sent it: of many that start together, few send 137 kB each.
    let sent = || (redis.calls(0, "evalsha"), redis.calls(0, "eval"));
    forget();
    assert!(blocking.check("5/minute", "a").expect("a decision").allowed());
    assert_eq!(sent(), (2, 1));
    forget();
    assert!(tasks.check("5/minute", "a").await.expect("a decision").allowed());
    assert_eq!(sent(), (2, 1));
    forget();
    let (first, second) = tokio::join!(tasks.check("5/minute", "b"), tasks.check("5/minute", "c"));
    assert!(first.expect("a decision").allowed() && second.expect("a decision").allowed());
    assert_eq!(sent().1, 1);
}

#[tokio::test]
async fn different_policies_costs_and_operations_fold_and_each_gets_its_own_answer() {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let builder =
        || Limiter::builder().timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO).clock(Arc::clone(&clock));
    let limiter = builder().store(redis.url()).timeout(Duration::from_secs(10)).build_async().expect("a limiter");
    let model = builder().build().expect("a limiter");
    let policies =
        ["90/minute", "gcra 7/s burst 60; fixed-window 50/hour", "token-bucket 30/minute", "sliding-counter 40/s"];
    let wanted = |number: u64| (policies[number as usize % 4], ["a", "b", "c"][number as usize % 3], number % 3 + 1);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..400 {
        let limiter = limiter.clone();
        let (policy, key, cost) = wanted(number);
        waiting.spawn(async move {
            let decision = match number % 5 {
                0 => limiter.refund(policy, key, 1).await,
                _ => limiter.check_n(policy, key, cost).await,
            };
            (number, decision.expect("a decision"))
        });
    }
    let mut found = Vec::new();
    while let Some(answered) = waiting.join_next().await {
        found.push(answered.expect("a task"));
    }
    // In memory one after the other, in the order of the answers: calls that are made at once have no other one.
    for (number, decision) in found {
        let (policy, key, cost) = wanted(number);
        let expected = match number % 5 {
            0 => model.refund(policy, key, 1),
            _ => model.check_n(policy, key, cost),
        };
        assert_eq!(text_of(&decision), text_of(&expected.expect("a decision")), "call {number}");
    }
}
