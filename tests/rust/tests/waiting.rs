//! Waiting for a limit, and holding units of one.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::{AsyncLimiter, Cost, Limiter, ManualClock, Options, Policy};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::threads;
use tidegate_tests::wait::wait_until;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)))
}

fn limiter(url: &str, clock: &Arc<ManualClock>) -> Limiter {
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).clock(Arc::clone(clock));
    builder.build().expect("a limiter")
}

/// Both stores, with a server that lives as long as the test.
fn stores() -> (Servers, [String; 2]) {
    let redis = Servers::start(Kind::Single);
    let urls = ["memory://".to_owned(), redis.url().to_owned()];
    (redis, urls)
}

#[test]
fn waiters_are_admitted_one_at_a_time_in_the_order_they_came() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = clock();
        let limiter = limiter(&url, &clock);
        assert!(limiter.check("gcra 1/s", "k").expect("a decision").allowed());
        let (sender, admitted) = mpsc::channel();
        let mut waiters = Vec::new();
        for number in 0..5 {
            let (waiter, sender) = (limiter.clone(), sender.clone());
            waiters.push(std::thread::spawn(move || {
                let decision = waiter.acquire("gcra 1/s", "k", 1, None).expect("a decision");
                sender.send((number, decision.allowed(), decision.at())).expect("the receiver lives");
            }));
            // The next caller comes when this one waits in the queue.
            while limiter.waiting("gcra 1/s", "k") <= number {
                std::thread::yield_now();
            }
        }
        for expected in 0..5 {
            assert!(admitted.try_recv().is_err(), "none is admitted before time has passed");
            clock.advance(Duration::from_secs(1));
            let (number, allowed, at) = admitted.recv().expect("one is admitted");
            assert_eq!((number, allowed, at), (expected, true, clock.now()), "{url}");
        }
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it ends"));
    }
}

#[test]
fn a_wait_that_cannot_end_in_time_is_denied_at_once() {
    let clock = clock();
    let limiter = limiter("memory://", &clock);
    limiter.check("1/minute", "k").expect("a decision");
    let denied = limiter.acquire("1/minute", "k", 1, Some(Duration::from_secs(5))).expect("a decision");
    assert!(!denied.allowed());
    let never = limiter.acquire("1/minute", "k", 2, None).expect("a decision");
    assert!(!never.allowed() && never.retry_after().is_none());
}

#[test]
fn a_caller_that_gives_up_behind_others_is_told_a_wait_that_counts_them() {
    let (_redis, urls) = stores();
    for url in urls {
        // The first caller waits for its five units, though there is room for one.
        for (policy, used, wait) in [("sliding-log 6/10s", 2, 10), ("fixed-window 5/10s", 5, 20)] {
            let clock = clock();
            let limiter = limiter(&url, &clock);
            assert!(limiter.check_n(policy, "k", used).expect("a decision").allowed());
            let wait_for = |cost: u64, timeout: Option<Duration>, place: usize| {
                let waiter = limiter.clone();
                let waiter = std::thread::spawn(move || waiter.acquire(policy, "k", cost, timeout));
                while limiter.waiting(policy, "k") < place {
                    std::thread::yield_now();
                }
                waiter
            };
            let first = wait_for(5, None, 1);
            // The refusal comes as soon as it is certain, so no time passes.
            let denied = limiter.acquire(policy, "k", 1, Some(Duration::from_secs(2))).expect("a decision");
            let (allowed, wait) = (denied.allowed(), Some(Duration::from_secs(wait)));
            assert_eq!((allowed, denied.cost(), denied.retry_after()), (false, 1, wait), "{policy} {url}");
            // For this caller it is certain only at the end of its time.
            let second = wait_for(1, Some(Duration::from_secs(30)), 2);
            limiter.block(policy, "k", Duration::from_secs(100)).expect("a block");
            clock.advance(Duration::from_secs(30));
            let denied = second.join().expect("it ends").expect("a decision");
            let opens = denied.at() + denied.retry_after().expect("a wait");
            assert_eq!((denied.allowed(), opens), (false, clock.now() + Duration::from_secs(70)), "{policy} {url}");
            clock.advance(Duration::from_secs(70));
            assert!(first.join().expect("it ends").expect("a decision").allowed());
        }
    }
}

#[test]
fn a_caller_behind_others_counts_what_they_take_of_each_limit() {
    let (_redis, urls) = stores();
    for url in urls {
        let (clock, policy) = (clock(), "fixed-window 10 requests/minute; fixed-window 100 tokens/minute");
        let limiter = limiter(&url, &clock);
        let tokens = |tokens| Cost::from([("tokens", tokens)]);
        assert!(limiter.check_with(policy, "k", &tokens(100).into()).expect("a decision").allowed());
        let wait_for = |units: u64, timeout: Option<Duration>, place: usize| {
            let waiter = limiter.clone();
            let waiter = std::thread::spawn(move || waiter.acquire(policy, "k", tokens(units), timeout));
            wait_until(Duration::from_secs(10), "a caller waits", || limiter.waiting(policy, "k") == place);
            waiter
        };
        let first = wait_for(60, None, 1);
        let denied = limiter.acquire(policy, "k", tokens(60), Some(Duration::from_secs(70))).expect("a decision");
        assert_eq!((denied.allowed(), denied.retry_after()), (false, Some(Duration::from_secs(120))), "{url}");
        // There is room for this one behind the first.
        let callers = [first, wait_for(40, Some(Duration::from_secs(70)), 2)];
        clock.advance(Duration::from_secs(60));
        callers
            .into_iter()
            .for_each(|caller| assert!(caller.join().expect("it ends").expect("a decision").allowed(), "{url}"));
    }
}

#[test]
fn a_refund_wakes_a_waiting_caller() {
    let clock = clock();
    let limiter = limiter("memory://", &clock);
    limiter.check("1/day", "k").expect("a decision");
    let waiter = {
        let limiter = limiter.clone();
        std::thread::spawn(move || limiter.acquire("1/day", "k", 1, None).expect("a decision").allowed())
    };
    while limiter.waiting("1/day", "k") == 0 {
        std::thread::yield_now();
    }
    limiter.refund("1/day", "k", 1).expect("a refund");
    assert!(waiter.join().expect("it ends"));
}

#[tokio::test]
async fn tasks_wait_as_threads_do_and_may_give_up() {
    let redis = Servers::start(Kind::Single);
    let clock = clock();
    let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
    let limiter: AsyncLimiter = builder.build_async().expect("a limiter");
    limiter.check("gcra 1/s", "k").await.expect("a decision");
    let wait =
        |limiter: AsyncLimiter| async move { limiter.acquire("gcra 1/s", "k", 1, None).await.expect("a decision") };
    let first = tokio::spawn(wait(limiter.clone()));
    let second = tokio::spawn(wait(limiter.clone()));
    let third = tokio::spawn(wait(limiter.clone()));
    while limiter.waiting("gcra 1/s", "k") < 3 {
        tokio::task::yield_now().await;
    }
    // A caller that gives up leaves the queue.
    second.abort();
    assert!(second.await.is_err());
    clock.advance(Duration::from_secs(1));
    assert!(first.await.expect("it ends").allowed());
    clock.advance(Duration::from_secs(1));
    assert!(third.await.expect("it ends").allowed());
    assert_eq!(limiter.peek("gcra 1/s", "k", 1).await.expect("a peek").remaining(), 0);
}

#[tokio::test]
async fn a_task_behind_others_is_told_a_wait_that_counts_them() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = clock();
        let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
        let limiter = builder.max_waiting_per_key(2).build_async().expect("a limiter");
        assert!(limiter.check("fixed-window 1/s", "k").await.expect("a decision").allowed());
        let acquire = |timeout: Option<Duration>| {
            let waiter = limiter.clone();
            tokio::spawn(async move { waiter.acquire("fixed-window 1/s", "k", 1, timeout).await })
        };
        let are_waiting = async |callers: usize| {
            while limiter.waiting("fixed-window 1/s", "k") < callers {
                tokio::task::yield_now().await;
            }
        };
        let first = acquire(None);
        are_waiting(1).await;
        let denied = acquire(Some(Duration::from_millis(1_500))).await.expect("it ends").expect("a decision");
        assert_eq!((denied.allowed(), denied.retry_after()), (false, Some(Duration::from_secs(2))), "{url}");
        let second = acquire(None);
        are_waiting(2).await;
        let beyond = limiter.acquire("fixed-window 1/s", "k", 1, None).await.expect("a decision");
        assert_eq!((beyond.allowed(), beyond.retry_after()), (false, Some(Duration::from_secs(3))), "no room to wait");
        for caller in [first, second] {
            clock.advance(Duration::from_secs(1));
            assert!(caller.await.expect("it ends").expect("a decision").allowed());
        }
    }
}

#[tokio::test]
async fn a_released_hold_has_room_for_the_next_one() {
    let (_redis, urls) = stores();
    for url in urls {
        let limiter = limiter(&url, &clock()).to_async();
        for _ in 0..20 {
            let hold = limiter.hold("concurrency 1 ttl 30s", "k", 1).await.expect("an answer").held().expect("room");
            hold.release().await;
        }
        let blocking = limiter.to_blocking();
        assert!(blocking.peek("concurrency 1 ttl 30s", "k", 1).expect("a peek").allowed(), "{url}");
        let hold = limiter.hold("concurrency 1 ttl 30s", "k", 1).await.expect("an answer").held().expect("room");
        limiter.close();
        // A closed store does not answer, and the call ends all the same.
        hold.release().await;
    }
}

#[test]
fn a_hold_is_released_when_it_is_dropped_also_by_a_panic() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = clock();
        let limiter = limiter(&url, &clock);
        let policy = "concurrency 2 ttl 30s; fixed-window 100/hour";
        let first = limiter.hold(policy, "k", 1).expect("an answer").held().expect("room");
        let holder = limiter.clone();
        let panicked = std::thread::spawn(move || {
            let _second = holder.hold(policy, "k", 1).expect("an answer").held().expect("room");
            assert!(holder.hold(policy, "k", 1).expect("an answer").held().is_none(), "it is full");
            std::panic::panic_any("the holder panics");
        });
        assert!(panicked.join().is_err());
        assert_eq!(limiter.peek(policy, "k", 1).expect("a peek").limits().next().map(|limit| limit.remaining), Some(1));
        drop(first);
        let left: Vec<u64> =
            limiter.peek(policy, "k", 1).expect("a peek").limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, [2, 98], "units of the hold come back, those of the window do not ({url})");
    }
}

#[test]
fn a_hold_renews_itself_and_an_unrenewed_one_ends_with_its_ttl() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = clock();
        let limiter = limiter(&url, &clock);
        let hold = limiter.hold("concurrency 1 ttl 30s", "kept", 1).expect("an answer").held().expect("room");
        // Charged units are never renewed, as if their process had died.
        limiter.charge("concurrency 1 ttl 30s", "unrenewed", 1).expect("a decision");
        for _ in 0..12 {
            clock.advance(Duration::from_secs(10));
            assert!(
                limiter.hold("concurrency 1 ttl 30s", "kept", 1).expect("an answer").held().is_none(),
                "still held ({url})"
            );
        }
        let free = limiter.hold("concurrency 1 ttl 30s", "unrenewed", 1).expect("an answer").held();
        assert!(free.is_some(), "its ttl is over ({url})");
        drop(hold);
        assert!(
            limiter.hold("concurrency 1 ttl 30s", "kept", 1).expect("an answer").held().is_some(),
            "given back ({url})"
        );
    }
}

#[test]
fn both_limiters_have_the_same_calls() {
    // A table makes the calls for both. The code before the table is in both too.
    let source = include_str!("../../../core/src/limiter/limiters.rs");
    let (own, tables) = source.split_once("macro_rules!").expect("a table");
    let names = |source: &'static str, begin: &'static str| -> Vec<&str> {
        source.split(begin).skip(1).filter_map(|rest| rest.split(['(', '<']).next()).collect()
    };
    assert_eq!(names(own, "    pub fn "), ["builder", "from_file", "from_file"]);
    let calls = names(tables, "\n    fn ");
    assert!(calls.len() >= 18 && calls.contains(&"check") && calls.contains(&"hold"), "{calls:?}");
}

#[test]
fn beyond_the_bounds_a_denial_comes_at_once() {
    let (_redis, urls) = stores();
    for url in urls {
        for (all, per_key, key, wait) in [(3, 100, "other", 0), (100, 3, "k", 4)] {
            let clock = clock();
            let builder = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
            let builder = builder.prefix(format!("bounds-{all}")).max_waiting(all).max_waiting_per_key(per_key);
            let limiter = builder.build().expect("a limiter");
            assert!(limiter.check("gcra 1/s", "k").expect("a decision").allowed());
            let wait_for_one = || {
                let waiter = limiter.clone();
                std::thread::spawn(move || waiter.acquire("gcra 1/s", "k", 1, None).expect("a decision").allowed())
            };
            let waiters: Vec<_> = (0..3).map(|_| wait_for_one()).collect();
            while limiter.waiting("gcra 1/s", "k") < 3 {
                std::thread::yield_now();
            }
            // Without a deadline it would wait for ever, because the clock stands still.
            let denied = limiter.acquire("gcra 1/s", key, 1, None).expect("a decision");
            assert!(!denied.allowed(), "{url}");
            // One unit comes back a second, and three callers are ahead.
            assert_eq!(denied.retry_after().map(|wait| wait.as_secs()), Some(wait), "{url}");
            assert_eq!((limiter.waiting("gcra 1/s", key) > 3, limiter.counters().acquires_refused), (false, 1));
            while waiters.iter().any(|waiter| !waiter.is_finished()) {
                clock.advance(Duration::from_secs(1));
                std::thread::yield_now();
            }
            assert!(waiters.into_iter().all(|waiter| waiter.join().expect("it ends")));
            // There is room again.
            assert!(limiter.acquire("gcra 1/s", "new", 1, None).expect("a decision").allowed());
        }
    }
}

#[test]
fn a_bound_of_nothing_is_an_error() {
    for builder in [Limiter::builder().max_waiting(0), Limiter::builder().max_waiting_per_key(0)] {
        let error = builder.build().expect_err("it would deny every call");
        assert_eq!(error.kind(), tidegate::ErrorKind::ConfigInvalid);
        assert!(error.message().contains("max_waiting"), "{error}");
    }
}

/// Separate limiters stand for processes, because their queues do not know of each other.
#[test]
fn no_limiter_starves_and_no_large_cost() {
    let redis = Servers::start(Kind::Single);
    let ended = AtomicBool::new(false);
    let (shares, large) = std::thread::scope(|scope| {
        let start = |cost: u64| {
            let (ended, url) = (&ended, redis.url());
            scope.spawn(move || {
                let limiter = Limiter::builder().store(url).prefix("fair").timeout(Duration::from_secs(10));
                let limiter = limiter.build().expect("a limiter");
                let mut served = 0_u64;
                while !ended.load(Ordering::Relaxed) {
                    let timeout = Some(Duration::from_secs(60));
                    served += u64::from(
                        limiter
                            .acquire("token-bucket 200/s burst 40", "k", cost, timeout)
                            .expect("a decision")
                            .allowed(),
                    );
                }
                served
            })
        };
        let small: Vec<_> = (0..5).map(|_| start(1)).collect();
        let large = start(40);
        std::thread::sleep(Duration::from_secs(6));
        ended.store(true, Ordering::Relaxed);
        let shares: Vec<u64> = small.into_iter().map(|one| one.join().expect("it ends")).collect();
        (shares, large.join().expect("it ends"))
    });
    println!("{shares:?}, and {large} of 40 units");
    let (least, most) = (shares.iter().min().expect("five"), shares.iter().max().expect("five"));
    assert!(least * 3 > *most, "{shares:?}");
    assert!(large >= 3, "{large} of 40 units beside {shares:?}");
}

/// Wakes a thread that drives a future without any runtime.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn acquire_waits_without_a_runtime_and_without_its_timers() {
    let (_redis, urls) = stores();
    for url in urls {
        let limiter = Limiter::builder().store(&url).timeout(Duration::from_secs(10)).build_async().expect("a limiter");
        let twice = |key: &'static str| async move {
            limiter.acquire("fixed-window 1/50ms", key, 1, None).await?;
            limiter.acquire("fixed-window 1/50ms", key, 1, Some(Duration::from_secs(10))).await
        };
        let (outside, inside) = (twice.clone()("outside"), twice("inside"));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut acquired = pin!(outside);
        let decision = loop {
            match acquired.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(decision) => break decision.expect("a decision"),
                Poll::Pending => std::thread::park(),
            }
        };
        assert!(decision.allowed(), "{url}");
        // A runtime without its timers.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert!(runtime.block_on(inside).expect("a decision").allowed(), "{url}");
    }
}

/// Polls a call `polls` times, then drops it. A fast server may complete the call before.
fn dropped_after<T>(polls: usize, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    (0..polls).any(|_| call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_wait_that_is_dropped_leaves_no_thread() {
    let limiter = Limiter::builder().build_async().expect("a limiter");
    limiter.to_blocking().check("fixed-window 1/hour", "k").expect("a decision");
    let is_there = || !threads::named("tidegate-alarm").is_empty();
    let mut waits = Box::pin(limiter.acquire("fixed-window 1/hour", "k", 1, None));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until(Duration::from_secs(10), "a thread watches the clock", is_there);
    drop(waits);
    wait_until(Duration::from_secs(10), "that thread ends", || !is_there());
}

#[test]
fn a_call_that_is_dropped_is_done_once_it_was_polled() {
    const POLICY: &str = "fixed-window 100/hour";
    fn done_once_polled<T, C: Future<Output = T>>(limiter: &Limiter, left: u64, call: impl Fn(AsyncLimiter) -> C) {
        let remaining = || limiter.peek(POLICY, "k", 1).expect("a peek").remaining();
        limiter.clear(POLICY, "k").expect("it is cleared");
        limiter.charge(POLICY, "k", 50).expect("a decision");
        dropped_after(0, call(limiter.to_async()));
        assert_eq!(remaining(), 50, "a call that was not polled does nothing");
        dropped_after(1, call(limiter.to_async()));
        wait_until(Duration::from_secs(10), &format!("{left} units are left"), || remaining() == left);
    }
    let redis = Servers::start(Kind::Single);
    let limiter = limiter(redis.url(), &clock());
    done_once_polled(&limiter, 49, |limiter| async move { limiter.check(POLICY, "k").await });
    done_once_polled(&limiter, 48, |limiter| async move { limiter.check_n(POLICY, "k", 2).await });
    done_once_polled(&limiter, 47, |limiter| async move { limiter.charge(POLICY, "k", 3).await });
    done_once_polled(&limiter, 54, |limiter| async move { limiter.refund(POLICY, "k", 4).await });
    done_once_polled(&limiter, 45, |limiter| async move { limiter.acquire(POLICY, "k", 5, None).await });
    done_once_polled(&limiter, 44, |limiter| async move { limiter.check_all([(POLICY, "k", 6)]).await });
    done_once_polled(&limiter, 100, |limiter| async move { limiter.clear(POLICY, "k").await });
    done_once_polled(&limiter, 0, |limiter| async move { limiter.block(POLICY, "k", Duration::from_secs(9)).await });
    // A Decision of two entries. A settle that is dropped at once has begun the first entry, and the other one only if
    // the answer came at once too. After another settle, each has given its units back once.
    let decision = limiter.check_all([(POLICY, "one", 10), (POLICY, "other", 10)]).expect("a decision");
    let remaining = |key: &str| limiter.peek(POLICY, key, 1).expect("a peek").remaining();
    dropped_after(1, limiter.to_async().settle(&decision, 1));
    wait_until(Duration::from_secs(10), "the first is settled", || remaining("one") == 99);
    drop(limiter.settle(&decision.decisions()[1], 1));
    wait_until(Duration::from_secs(10), "the other is settled", || remaining("other") == 99);
}

#[tokio::test]
async fn an_acquire_that_is_dropped_leaves_the_line_and_takes_nothing_more() {
    let (_redis, urls) = stores();
    for url in urls {
        let clock = clock();
        let limiter = limiter(&url, &clock).to_async();
        limiter.check("gcra 1/s", "k").await.expect("a decision");
        let waiter = limiter.clone();
        let waits = tokio::spawn(async move { waiter.acquire("gcra 1/s", "k", 1, None).await });
        while limiter.waiting("gcra 1/s", "k") == 0 {
            tokio::task::yield_now().await;
        }
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(limiter.waiting("gcra 1/s", "k"), 0);
        clock.advance(Duration::from_secs(1));
        assert!(limiter.check("gcra 1/s", "k").await.expect("a decision").allowed(), "{url}");
    }
}

#[test]
fn a_hold_that_is_dropped_before_its_answer_gives_its_units_back() {
    let redis = Servers::start(Kind::Single);
    let limiter = limiter(redis.url(), &clock());
    let limits = Policy::parse("concurrency 1 ttl 30s").expect("a policy").limits().to_vec();
    let policy = Policy::new(limits, Options { journal: 9, ..Options::default() }).expect("a policy");
    let asking = limiter.to_async();
    dropped_after(0, asking.hold(&policy, "k", 1));
    dropped_after(1, asking.hold(&policy, "k", 1));
    let attempts = || limiter.journal(&policy, "k").expect("a journal").len();
    wait_until(Duration::from_secs(10), "the store has granted it", || attempts() == 1);
    // The clock stands still, so the ttl of the hold is not over.
    let is_free = || limiter.peek(&policy, "k", 1).expect("a peek").allowed();
    wait_until(Duration::from_secs(10), "its unit is back", is_free);
}

#[test]
fn every_call_says_what_it_means_to_drop_it() {
    let table = include_str!("../../../core/src/limiter/limiters.rs").split("\ncalls! {").nth(1).unwrap_or_default();
    let table = table.split("\n}\n").next().unwrap_or_default();
    let hold = include_str!("../../../core/src/limiter/hold.rs");
    for (source, call, safety) in
        [(table, "    fn ", "    dropped:\n    /// "), (hold, "pub async fn ", "    /// # Cancel safety\n")]
    {
        let calls: Vec<&str> = source.split("\n\n").filter(|item| item.contains(call)).collect();
        let silent = calls.iter().filter(|call| !call.contains(safety));
        assert_eq!(silent.collect::<Vec<_>>(), Vec::<&&str>::new());
        assert!(!calls.is_empty());
    }
}
