//! Closing a limiter ends its waiting calls, and gives its holds and turns back.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate::{Cost, HoldAnswer, Limiter, ManualClock, Result};
use tidegate_tests::random::Random;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::shared_file::SharedFile;
use tidegate_tests::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

/// The stores that processes share.
struct Stores(Servers, SharedFile);

impl Stores {
    fn start() -> Self {
        Self(Servers::start(Kind::Single), SharedFile::new())
    }

    fn urls(&self) -> [String; 2] {
        [self.0.url().to_owned(), self.1.url("max_bytes=1MB")]
    }
}

fn limiter(url: &str, clock: Option<&Arc<ManualClock>>) -> Limiter {
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10));
    let builder = clock.into_iter().fold(builder, |builder, clock| builder.clock(Arc::clone(clock)));
    builder.build().expect("a limiter")
}

/// A call on a thread. Every second one runs as a task of a separate runtime.
fn caller<T: Send + 'static>(
    number: usize,
    on_thread: impl FnOnce() -> T + Send + 'static,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(move || match number % 2 {
        0 => on_thread(),
        _ => tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(task),
    })
}

fn holder(number: usize, limiter: &Limiter, policy: &'static str, key: &str) -> JoinHandle<Result<HoldAnswer>> {
    let (waits, awaits, own, key) = (limiter.clone(), limiter.to_async(), key.to_owned(), key.to_owned());
    let task = async move { awaits.hold_within(policy, &own, &Cost::from(1).into(), None).await };
    caller(number, move || waits.hold_within(policy, &key, &Cost::from(1).into(), None), task)
}

fn acquirer(number: usize, limiter: &Limiter, policy: &'static str) -> JoinHandle<Result<bool>> {
    let (waits, awaits) = (limiter.clone(), limiter.to_async());
    let task = async move { awaits.acquire(policy, "k", 1, None).await };
    let call = caller(number, move || waits.acquire(policy, "k", 1, None), task);
    std::thread::spawn(move || call.join().expect("it ends").map(|decision| decision.allowed()))
}

#[test]
fn closing_ends_those_who_wait_for_a_hold_before_it_gives_holds_back() {
    const POLICY: &str = "concurrency 2 ttl 60s";
    let stores = Stores::start();
    for url in stores.urls() {
        let (limiter, other) = (limiter(&url, None), limiter(&url, None));
        let held: Vec<_> =
            (0..2).map(|number| holder(number, &limiter, POLICY, "k").join().expect("it ends")).collect();
        let waiting: Vec<_> = (0..4).map(|number| holder(number, &limiter, POLICY, "k")).collect();
        wait_until(PATIENCE, "four wait", || limiter.waiting(POLICY, "k") == 4);
        limiter.close();
        assert_eq!(other.peek(POLICY, "k", 1).expect("a peek").remaining(), 2, "{url}");
        for waiter in waiting {
            assert_eq!(waiter.join().expect("it ends").expect_err("closed").code(), "closed", "{url}");
        }
        for answer in held {
            let hold = answer.expect("an answer").held().expect("there was room");
            assert!(hold.lost(), "others may have its units");
        }
        assert_eq!(other.peek(POLICY, "k", 1).expect("a peek").remaining(), 2, "{url}");
    }
}

#[test]
fn closing_leaves_no_unit_held_whenever_it_comes() {
    const POLICY: &str = "concurrency 2 ttl 60s";
    let stores = Stores::start();
    let mut random = Random::new(50);
    for url in stores.urls() {
        let other = limiter(&url, None);
        for round in 0..25 {
            let (limiter, key) = (limiter(&url, None), format!("k{round}"));
            let (limiter, key) = (&limiter, &*key);
            std::thread::scope(|scope| {
                for number in 0..6 {
                    scope.spawn(move || {
                        while let Ok(answer) = holder(number, limiter, POLICY, key).join().expect("it ends") {
                            assert!(answer.held().is_some(), "it waits for as long as it takes");
                        }
                    });
                }
                wait_until(PATIENCE, "they wait", || limiter.waiting(POLICY, key) > 2);
                std::thread::sleep(Duration::from_micros(random.below(5_000)));
                limiter.close();
                assert_eq!(other.peek(POLICY, key, 1).expect("a peek").remaining(), 2, "{url}, round {round}");
            });
            assert_eq!(other.peek(POLICY, key, 1).expect("a peek").remaining(), 2, "{url}, round {round}");
        }
    }
}

#[test]
fn closing_gives_the_turns_of_acquire_back() {
    const POLICY: &str = "gcra 1/s burst 1";
    let stores = Stores::start();
    for url in stores.urls() {
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
        let (limiter, other) = (limiter(&url, Some(&clock)), limiter(&url, Some(&clock)));
        assert!(other.check(POLICY, "k").expect("a decision").allowed());
        let waiting: Vec<_> = (0..20).map(|number| acquirer(number, &limiter, POLICY)).collect();
        wait_until(PATIENCE, "all wait", || limiter.waiting(POLICY, "k") == 20);
        limiter.close();
        let left = other.peek(POLICY, "k", 1).expect("a peek").retry_after();
        assert_eq!(left, Some(Duration::from_secs(1)), "{url}");
        for waiter in waiting {
            assert_eq!(waiter.join().expect("it ends").expect_err("closed").code(), "closed", "{url}");
        }
    }
}

#[test]
fn closing_keeps_no_turn_and_no_unit_of_calls_that_it_meets_on_their_way() {
    let stores = Stores::start();
    let mut random = Random::new(51);
    for policy in ["gcra 1/s burst 1", "fixed-window 1/minute"] {
        for url in stores.urls() {
            for round in 0..25 {
                let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000 + 1_000 * round)));
                let (limiter, other) = (limiter(&url, Some(&clock)), limiter(&url, Some(&clock)));
                let waiting: Vec<_> = (0..12).map(|number| acquirer(number, &limiter, policy)).collect();
                std::thread::sleep(Duration::from_micros(random.below(3_000)));
                limiter.close();
                let allowed = waiting.into_iter().map(|waiter| waiter.join().expect("it ends"));
                let allowed = allowed.filter(|answer| answer.as_ref().is_ok_and(|allowed| *allowed)).count();
                let free = other.peek(policy, "k", 1).expect("a peek");
                let left = free.retry_after().unwrap_or_default();
                let period = Duration::from_secs(if policy.starts_with("gcra") { 1 } else { 60 });
                assert!(allowed <= 1, "nothing moves the clock");
                assert!(left <= period * allowed as u32, "{url}, {policy}, round {round}: {left:?}, {allowed} allowed");
            }
        }
    }
}

#[test]
fn closing_ends_every_acquire_at_once() {
    let redis = Servers::start(Kind::Single);
    for url in ["memory://", redis.url()] {
        for clock in [None, Some(Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000))))] {
            let builder = Limiter::builder().store(url).prefix(format!("close-{}", clock.is_some()));
            let builder = builder.timeout(Duration::from_secs(10));
            let limiter = match &clock {
                Some(clock) => builder.clock(Arc::clone(clock)),
                None => builder,
            };
            let limiter = limiter.build().expect("a limiter");
            assert!(limiter.check("1/hour", "k").expect("a decision").allowed());
            let (sender, ended) = mpsc::channel();
            for number in 0..3 {
                let (waiter, sender) = (limiter.clone(), sender.clone());
                std::thread::spawn(move || {
                    let answer = if number == 0 {
                        tokio::runtime::Builder::new_current_thread()
                            .build()
                            .expect("a runtime")
                            .block_on(waiter.to_async().acquire("1/hour", "k", 1, None))
                    } else {
                        waiter.acquire("1/hour", "k", 1, None)
                    };
                    sender.send(answer.map(|decision| decision.allowed())).expect("the receiver lives");
                });
            }
            wait_until(Duration::from_secs(20), "all wait", || limiter.waiting("1/hour", "k") == 3);
            limiter.close();
            for _ in 0..3 {
                let answer = ended.recv_timeout(Duration::from_secs(20)).expect("it ends");
                assert_eq!(answer.expect_err("closed").code(), "closed", "{url}");
            }
        }
    }
}
