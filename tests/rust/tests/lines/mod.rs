//! The line of callers that wait for a window, for a hold, or in a class. docs/adr/0036 has its rules.

mod histories;
mod kept_limits;
mod kills;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::{
    CheckOptions, ErrorKind, HoldAnswer, Limiter, ManualClock, Options, Period, Policy, Priorities, TimeUnit, Units,
};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

fn limiter(url: &str) -> Limiter {
    Limiter::builder().store(url).timeout(Duration::from_secs(10)).build().expect("a limiter")
}

/// Both stores, with a server that lives as long as the test.
fn stores() -> (Servers, [String; 2]) {
    let redis = Servers::start(Kind::Single);
    let urls = ["memory://".to_owned(), redis.url().to_owned()];
    (redis, urls)
}

fn hold(limiter: &Limiter, policy: &str, timeout: Option<Duration>) -> HoldAnswer {
    limiter.hold_within(policy, "k", &CheckOptions::default(), timeout).expect("an answer")
}

fn class(name: &str, cost: u64) -> CheckOptions {
    CheckOptions { cost, priority: Some(name.into()), ..CheckOptions::default() }
}

fn with_classes(notation: &str) -> Policy {
    let limits = Policy::parse(notation).expect("a policy").limits().to_vec();
    let priorities = Priorities::new([("batch", "30%"), ("background", "60%")]).expect("classes");
    Policy::new(limits, Options { priorities: Some(priorities), ..Options::default() }).expect("a policy")
}

#[test]
fn a_hold_waits_for_one_that_ends_in_the_same_process() {
    let (_redis, urls) = stores();
    for url in urls {
        let limiter = limiter(&url);
        let policy = "concurrency 1 ttl 30s";
        let late = (0..10).map(|_| {
            let first = hold(&limiter, policy, Some(Duration::ZERO)).held().expect("room");
            let waiter = limiter.clone();
            let waits = std::thread::spawn(move || {
                let held = hold(&waiter, policy, None).held();
                (held.is_some(), Instant::now())
            });
            wait_until(PATIENCE, "it waits", || limiter.waiting(policy, "k") == 1);
            let freed = Instant::now();
            drop(first);
            let (held, got) = waits.join().expect("it ends");
            assert!(held, "{url}");
            wait_until(PATIENCE, "the unit is back", || limiter.peek(policy, "k", 1).expect("a peek").allowed());
            got - freed
        });
        // The machine may be busy.
        let least = late.min().expect("ten");
        assert!(least < Duration::from_millis(20), "{least:?} ({url})");
    }
}

#[test]
fn a_hold_gives_up_when_its_time_is_over_and_at_once_where_another_limit_lasts_longer() {
    let (_redis, urls) = stores();
    for url in urls {
        let limiter = limiter(&url);
        let policy = "2/hour; concurrency 1 ttl 30s";
        let first = hold(&limiter, policy, Some(Duration::ZERO)).held().expect("room");
        let began = Instant::now();
        let denied = hold(&limiter, policy, Some(Duration::from_millis(300)));
        assert!(denied.held().is_none());
        assert!(began.elapsed() >= Duration::from_millis(300), "it waits: a hold may end at any time ({url})");
        assert!(hold(&limiter, policy, Some(Duration::ZERO)).held().is_none(), "at once");
        drop(first);
        let second = hold(&limiter, policy, None).held().expect("room");
        let began = Instant::now();
        let denied = hold(&limiter, policy, Some(Duration::from_secs(60)));
        assert!(denied.held().is_none() && began.elapsed() < Duration::from_secs(30), "no room for an hour ({url})");
        drop(second);
    }
}

#[test]
fn a_hold_that_waits_with_a_clock_of_ones_own_sees_what_other_processes_give_back() {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let make = || {
        let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10));
        builder.clock(Arc::clone(&clock)).build().expect("a limiter")
    };
    let (one, other) = (make(), make());
    let policy = "concurrency 1 ttl 30s";
    let first = hold(&one, policy, Some(Duration::ZERO)).held().expect("room");
    let waits = {
        let other = other.clone();
        std::thread::spawn(move || hold(&other, policy, None).held().is_some())
    };
    wait_until(PATIENCE, "it waits", || other.waiting(policy, "k") == 1);
    drop(first);
    assert!(waits.join().expect("it ends"));
}

#[test]
fn one_caller_of_a_process_asks_and_less_and_less_often() {
    let redis = Servers::start(Kind::Single);
    let (holder, waiter) = (limiter(redis.url()), limiter(redis.url()));
    for (policy, options) in [("concurrency 1 ttl 30s", true), ("1/hour", false)] {
        let first = if options {
            hold(&holder, policy, Some(Duration::ZERO)).held()
        } else {
            assert!(holder.check(policy, "k").expect("a decision").allowed());
            None
        };
        let asked: Vec<_> = (0..20)
            .map(|_| {
                let waiter = waiter.to_async();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                    runtime.expect("a runtime").block_on(async {
                        let wait = Duration::from_millis(1_500);
                        if options {
                            let once = CheckOptions::default();
                            let call = waiter.hold_within(policy, "k", &once, None);
                            tokio::time::timeout(wait, call).await.is_err()
                        } else {
                            tokio::time::timeout(wait, waiter.acquire(policy, "k", 1, None)).await.is_err()
                        }
                    })
                })
            })
            .collect();
        wait_until(PATIENCE, "all wait", || waiter.waiting(policy, "k") == 20);
        let (began, before) = (Instant::now(), redis.calls(0, "evalsha"));
        std::thread::sleep(Duration::from_millis(1_000));
        let (calls, passed) = (redis.calls(0, "evalsha") - before, began.elapsed());
        // Callers that give up within the second leave the line, and close their request. Otherwise there is one call
        // every 50 ms. Held units are asked for more often in the first 400 ms.
        let most = passed.as_millis() as u64 / 50 + if options { 17 } else { 1 };
        println!("{policy}: {calls} calls in {passed:?}");
        assert!(calls <= most, "{policy}: {calls} calls in {passed:?}");
        assert!(asked.into_iter().all(|asked| asked.join().expect("it ends")));
        drop(first);
    }
}

/// The largest number of later callers that were served before a caller.
fn overtaken(served: &[usize]) -> usize {
    let later = |place: usize| served[..place].iter().filter(|other| **other > served[place]).count();
    (0..served.len()).map(later).max().unwrap_or(0)
}

/// The callers in the order in which they were served. Each limiter stands for a process.
fn order_of(url: &str, policy: &'static str, callers: usize, limiters: usize) -> Vec<usize> {
    let processes: Vec<Limiter> = (0..limiters).map(|_| limiter(url)).collect();
    let is_held = policy.contains("concurrency");
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..callers {
            // The first half uses the first limiter, and the later callers use the others.
            let of = if number < callers / 2 { 0 } else { 1 + number % (limiters - 1) };
            let (limiter, served) = (&processes[of], &served);
            scope.spawn(move || {
                if is_held {
                    let held = hold(limiter, policy, None).held().expect("it waits for ever");
                    served.lock().expect("no panic").push((held.decision().at(), number));
                    std::thread::sleep(Duration::from_millis(3));
                    drop(held);
                } else {
                    let decision = limiter.acquire(policy, "k", 1, None).expect("a decision");
                    served.lock().expect("no panic").push((decision.at(), number));
                }
            });
            let waiting = || processes.iter().map(|one| one.waiting(policy, "k")).sum::<usize>();
            wait_until(PATIENCE, "it waits or is served", || {
                waiting() + served.lock().expect("no panic").len() > number
            });
        }
    });
    // In order of the store's time, because the machine may run them in another order.
    let mut served = served.into_inner().expect("no panic");
    served.sort_unstable();
    served.into_iter().map(|(_, number)| number).collect()
}

#[test]
fn a_caller_is_overtaken_by_few_later_ones_over_all_processes() {
    let redis = Servers::start(Kind::Single);
    for (policy, callers) in [("fixed-window 20/200ms", 160), ("concurrency 2 ttl 30s", 80)] {
        let served = order_of(redis.url(), policy, callers, 4);
        let most = overtaken(&served);
        println!("{policy}: overtaken by at most {most}");
        assert!(most <= 16, "{policy}: {most}; {served:?}");
    }
}

#[test]
fn a_large_cost_is_served_beside_small_ones_of_other_processes() {
    let redis = Servers::start(Kind::Single);
    let (ended, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let policy = "sliding-window 40/200ms";
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let limiter = limiter(redis.url());
                while !ended.load(Ordering::Relaxed) {
                    limiter.acquire(policy, "k", 1, None).expect("a decision");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until(PATIENCE, "they are served", || served.load(Ordering::Relaxed) > 100);
        let large = limiter(redis.url()).acquire(policy, "k", 40, Some(PATIENCE)).expect("a decision");
        ended.store(true, Ordering::Relaxed);
        assert!(large.allowed());
    });
}

#[test]
fn a_caller_that_is_gone_without_a_word_delays_others_for_a_second_at_most() {
    let redis = Servers::start(Kind::Single);
    let policy = "fixed-window 8/100ms";
    let (gone, other) = (limiter(redis.url()), limiter(redis.url()));
    assert!(other.check_n(policy, "k", 8).expect("a decision").allowed());
    let waker = std::task::Waker::noop();
    // It wants so many units that others overtake it, and it never asks again.
    let asking = gone.to_async();
    let mut call =
        Box::pin(async move { asking.acquire(policy, "k", 8, None).await.map(|decision| decision.allowed()) });
    assert!(call.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    wait_until(PATIENCE, "it stands in the line", || gone.waiting(policy, "k") == 1);
    std::thread::sleep(Duration::from_millis(60));
    std::mem::forget(call);
    let began = Instant::now();
    for _ in 0..40 {
        assert!(other.acquire(policy, "k", 1, Some(PATIENCE)).expect("a decision").allowed());
    }
    // Five windows, and the second of the delay.
    println!("{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_class_with_a_reserve_waits_behind_those_above_it_and_holds_none_of_them_up() {
    let (_redis, urls) = stores();
    for url in urls {
        for several in [false, true] {
            let policy = with_classes("fixed-window 10/300ms");
            let one = limiter(&url);
            let other = if several && url != "memory://" { limiter(&url) } else { one.clone() };
            assert!(one.check_n(&policy, "k", 8).expect("a decision").allowed());
            let batch = {
                let (one, policy) = (one.clone(), policy.clone());
                std::thread::spawn(move || {
                    let decision = one.acquire_with(&policy, "k", &class("batch", 1), None).expect("a decision");
                    (decision.allowed(), decision.at())
                })
            };
            wait_until(PATIENCE, "it waits", || one.waiting(&policy, "k") == 1);
            let above = other.acquire(&policy, "k", 1, None).expect("a decision");
            assert!(above.allowed() && !batch.is_finished(), "there is room for it, not for the class ({url})");
            let (allowed, at) = batch.join().expect("it ends");
            assert!(allowed && at > above.at());
        }
    }
}

#[test]
fn classes_are_served_in_their_order_and_those_of_one_as_they_came() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
        let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
        let limiter = builder.build().expect("a limiter");
        let policy = with_classes("fixed-window 10/10s");
        assert!(limiter.check_n(&policy, "k", 10).expect("a decision").allowed());
        let served = Arc::new(Mutex::new(Vec::new()));
        let waits = |name: &'static str, options: CheckOptions| {
            let (limiter, policy, served) = (limiter.clone(), policy.clone(), Arc::clone(&served));
            let before = limiter.waiting(&policy, "k");
            let watched = (limiter.clone(), policy.clone());
            let waiter = std::thread::spawn(move || {
                let decision = limiter.acquire_with(&policy, "k", &options, None).expect("a decision");
                served.lock().expect("no panic").push(name);
                assert!(decision.allowed());
            });
            wait_until(PATIENCE, "it waits", || watched.0.waiting(&watched.1, "k") > before);
            waiter
        };
        let waiters = vec![
            waits("background", class("background", 4)),
            waits("batch", class("batch", 5)),
            waits("first", CheckOptions { cost: 10, ..CheckOptions::default() }),
            waits("second", CheckOptions { cost: 10, ..CheckOptions::default() }),
            waits("later batch", class("batch", 6)),
        ];
        for served_by_then in 1..=5 {
            clock.advance(Duration::from_secs(10));
            wait_until(PATIENCE, "the next one is served", || served.lock().expect("no panic").len() >= served_by_then);
        }
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it ends"));
        let order = served.lock().expect("no panic").clone();
        assert_eq!(order, ["first", "second", "batch", "later batch", "background"], "{url}");
    }
}

#[test]
fn an_attempt_that_goes_on_waiting_is_no_denial() {
    let (_redis, urls) = stores();
    for url in urls {
        let limits = Policy::parse("fixed-window 1/300ms").expect("a policy").limits().to_vec();
        let block_for = Some("1h".parse().expect("a length"));
        for options in
            [Options { block_for, ..Options::default() }, Options { count_denied: true, ..Options::default() }]
        {
            let policy = Policy::new(limits.clone(), options).expect("a policy");
            let limiter = Limiter::builder().store(&url).prefix(format!("{:?}", policy.options().count_denied));
            let limiter = limiter.timeout(Duration::from_secs(10)).build().expect("a limiter");
            assert!(limiter.check(&policy, "k").expect("a decision").allowed());
            let waited = limiter.acquire(&policy, "k", 1, Some(PATIENCE)).expect("a decision");
            assert!(waited.allowed(), "{url}: {waited:?}");
            // Its time is over before there is room.
            let late = limiter.acquire(&policy, "k", 1, Some(Duration::from_millis(1))).expect("a decision");
            assert!(!late.allowed());
            let after = late.retry_after().expect("it ends");
            match policy.options().count_denied {
                true => assert_eq!(late.limits().next().map(|limit| limit.over), Some(1), "it was charged ({url})"),
                false => assert!(after > Duration::from_secs(3_000), "it began a block: {after:?} ({url})"),
            }
        }
    }
}

#[test]
fn a_hold_is_not_renewed_beyond_its_longest_age() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
        let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
        let limiter = builder.build().expect("a limiter");
        let limits = Policy::parse("concurrency 1 ttl 30s").expect("a policy").limits().to_vec();
        let max_hold = Some(Period::new(1, TimeUnit::Minute).expect("a period"));
        let policy = Policy::new(limits, Options { max_hold, ..Options::default() }).expect("a policy");
        let held = limiter.hold(&policy, "k", 1).expect("an answer").held().expect("room");
        let is_free = || limiter.peek(&policy, "k", 1).expect("a peek").allowed();
        for second in 1..=100 {
            clock.advance(Duration::from_secs(1));
            assert!(second >= 80 || !is_free(), "it is renewed for a minute ({url}, {second} s)");
        }
        assert!(is_free() && held.lost(), "its ttl has ended it ({url})");
    }
}

#[tokio::test]
async fn a_hold_is_settled_once_and_keeps_what_is_held() {
    let (_redis, urls) = stores();
    for url in urls {
        let limiter = limiter(&url).to_async();
        let policy = "100000 tokens/minute; 50/minute; concurrency 4 ttl 30s";
        let cost = Units::from([("tokens", 1_200)]);
        let held = limiter.hold(policy, "k", cost).await.expect("an answer").held().expect("room");
        let left = async || -> Vec<u64> {
            let peek = limiter.peek(policy, "k", Units::from([("tokens", 1)])).await.expect("a peek");
            peek.limits().map(|limit| limit.remaining).collect()
        };
        assert_eq!(left().await, [98_800, 49, 3]);
        held.settle(Units::from([("tokens", 934)])).await.expect("it is settled");
        assert_eq!(left().await, [99_066, 49, 3], "{url}");
        let again = held.settle(1).await.expect_err("once");
        assert_eq!(again.kind(), ErrorKind::ConfigInvalid);
        held.release().await;
        assert_eq!(left().await, [99_066, 49, 4], "{url}");
    }
}

#[test]
fn a_peek_sees_who_stands_in_the_line() {
    let redis = Servers::start(Kind::Single);
    let (one, other) = (limiter(redis.url()), limiter(redis.url()));
    let policy = "concurrency 1 ttl 30s";
    let line = || tidegate::host::line(&one.peek(policy, "k", 1).expect("a peek"));
    let first = hold(&one, policy, None).held().expect("room");
    assert_eq!(line(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| hold(&other, policy, None).held().expect("it waits for ever"));
        wait_until(PATIENCE, "it stands there", || line().is_some_and(|(callers, _)| callers == 1));
        wait_until(PATIENCE, "it waits", || line().is_some_and(|(_, longest)| longest >= Duration::from_millis(100)));
        // A caller that gives up leaves the line, and takes only its own place away.
        let gives_up = other.hold_within(policy, "k", &CheckOptions::default(), Some(Duration::from_millis(60)));
        assert!(gives_up.expect("an answer").held().is_none());
        assert!(line().is_some());
        drop(first);
    });
    wait_until(PATIENCE, "it has left", || line().is_none());
}
