//! Behind a proxy that repeats, drops, swaps and cuts replies, no call gets another call's Decision.
//!
//! Every call has a unique key and cost, so that the right Decision is known. `TIDEGATE_OUT_OF_STEP` sets the number of
//! Decisions that each way of calling has to get.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{Builder, Decision, ErrorKind, Limiter, OnStoreError, Result};
use tidegate_tests::faulty_proxy::FaultyProxy;
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};

const POLICIES: [&str; 4] = [
    "fixed-window 1000000/hour",
    "gcra 1000000/hour",
    "sliding-window 1000000/day; fixed-window 2000000/day",
    "sliding-log 1000000/hour",
];
const COUNT: u64 = 1_000_000;
/// A wait after an error, because calls fail at once while the breaker is open.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

fn decisions() -> u64 {
    std::env::var("TIDEGATE_OUT_OF_STEP").map_or(20_000, |text| text.parse().expect("a number"))
}

fn builder(proxy: &FaultyProxy) -> Builder {
    let url = format!("redis://127.0.0.1:{}/0", proxy.port());
    let builder = Limiter::builder().store(url).timeout(Duration::from_millis(60)).deny_cache(Duration::ZERO);
    builder.on_store_error(OnStoreError::Raise)
}

/// A call that no other call resembles.
struct Question {
    policy: &'static str,
    key: String,
    cost: u64,
    only_looks: bool,
}

impl Question {
    fn new(number: u64, random: &mut Random) -> Self {
        let cost = if random.one_in(4) { COUNT + 1 + random.below(COUNT) } else { 1 + random.below(COUNT) };
        Self { policy: random.pick(&POLICIES), key: format!("key {number}"), cost, only_looks: random.one_in(5) }
    }

    /// True if there was a Decision. It must be the right one.
    fn is_answered(&self, result: Result<Decision>) -> bool {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                let expected = [ErrorKind::StoreUnavailable, ErrorKind::StoreTimeout, ErrorKind::StoreRejected];
                assert!(expected.contains(&error.kind()), "{error}");
                return false;
            }
        };
        let allowed = self.cost <= COUNT;
        let charged = if allowed && !self.only_looks { self.cost } else { 0 };
        let found = (decision.allowed(), decision.limits().next().map(|limit| limit.remaining), decision.cost());
        assert_eq!(found, (allowed, Some(COUNT - charged), self.cost), "{decision:?}");
        true
    }
}

#[test]
fn blocking_calls_get_their_own_decision_or_an_error() {
    let redis = Servers::start(Kind::Single);
    let proxy = FaultyProxy::to(redis.port(0), 1, 100);
    let limiter = builder(&proxy).build().expect("a limiter");
    let (answered, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, answered, asked) = (&limiter, &answered, &asked);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while answered.load(Ordering::Relaxed) < decisions() {
                    let question = Question::new(asked.fetch_add(1, Ordering::Relaxed), &mut random);
                    let Question { policy, key, cost, .. } = &question;
                    let result = if question.only_looks {
                        limiter.peek(*policy, key, *cost)
                    } else {
                        limiter.check_n(*policy, key, *cost)
                    };
                    if question.is_answered(result) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        std::thread::sleep(AFTER_FAILURE);
                    }
                }
            });
        }
    });
    eprintln!("blocking: {answered:?} Decisions of {asked:?} calls, {} replies corrupted", proxy.faults());
    assert!(proxy.faults() > decisions() / 200, "{} replies were corrupted", proxy.faults());
}

#[tokio::test]
async fn awaited_calls_get_their_own_decision_or_an_error() {
    let redis = Servers::start(Kind::Single);
    let proxy = FaultyProxy::to(redis.port(0), 2, 100);
    let limiter = builder(&proxy).build_async().expect("a limiter");
    let (answered, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let (limiter, answered, asked) = (limiter.clone(), Arc::clone(&answered), Arc::clone(&asked));
        tasks.spawn(async move {
            let mut random = Random::new(100 + task);
            while answered.load(Ordering::Relaxed) < decisions() {
                let question = Question::new(asked.fetch_add(1, Ordering::Relaxed), &mut random);
                let Question { policy, key, cost, .. } = &question;
                let result = if question.only_looks {
                    limiter.peek(*policy, key, *cost).await
                } else {
                    limiter.check_n(*policy, key, *cost).await
                };
                if question.is_answered(result) {
                    answered.fetch_add(1, Ordering::Relaxed);
                } else {
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a task ends");
    }
    eprintln!("awaited: {answered:?} Decisions of {asked:?} calls, {} replies corrupted", proxy.faults());
    assert!(proxy.faults() > decisions() / 1_000, "{} replies were corrupted", proxy.faults());
}

/// The most memory that the process has used so far, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1_024
}

#[tokio::test]
async fn a_reply_without_end_is_not_read() {
    let redis = Servers::start(Kind::Single);
    for begin in ["$500000000\r\n", "*1000000000\r\n", "*2\r\n*900000000\r\n"] {
        let proxy = FaultyProxy::that_floods(redis.port(0), begin);
        let before = peak_memory();
        // The error comes long before this timeout.
        let builder = || builder(&proxy).timeout(Duration::from_secs(20));
        let (blocking, awaited) = (builder().build().expect("a limiter"), builder().build_async());
        let begins = std::time::Instant::now();
        let error = tokio::task::spawn_blocking(move || blocking.check("5/minute", "k")).await.expect("a thread");
        let error = error.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{begin:?}: {error}");
        assert!(error.message().contains("longer than any answer"), "{begin:?}: {error}");
        let error = awaited.expect("a limiter").check("5/minute", "k").await.expect_err("no answer");
        assert!(error.message().contains("longer than any answer"), "{begin:?}: {error}");
        assert!(proxy.faults() >= 2);
        let grown = peak_memory() - before;
        assert!(grown < 16_000_000, "{begin:?}: {grown} bytes in {:?}", begins.elapsed());
    }
}
