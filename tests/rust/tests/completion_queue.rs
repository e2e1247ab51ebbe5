//! Answers delivered to a completion queue: each once, one wake-up for all that come together, none for a cancelled task.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidegate::host::{Call, CompletionQueue, Outcome, Wake, post_task};
use tidegate::{Cost, Limiter, ManualClock, Result};
use tidegate_tests::servers::{Kind, Servers};

#[derive(Default)]
struct Deliveries {
    delivered: Mutex<HashMap<u64, Result<Outcome>>>,
    woken: AtomicUsize,
    changed: Condvar,
}

impl Wake for Deliveries {
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let _delivered = self.delivered.lock().expect("no panic");
        self.changed.notify_all();
    }
}

impl CompletionQueue for Deliveries {
    fn deliver(&self, ticket: u64, outcome: Result<Outcome>) {
        assert!(
            self.delivered.lock().expect("no panic").insert(ticket, outcome).is_none(),
            "{ticket} was delivered twice"
        );
    }
}

impl Deliveries {
    fn wait_for(&self, count: usize) {
        let mut delivered = self.delivered.lock().expect("no panic");
        while delivered.len() < count {
            let (now, result) = self.changed.wait_timeout(delivered, Duration::from_secs(20)).expect("no panic");
            delivered = now;
            assert!(!result.timed_out(), "{} of {count} were delivered", delivered.len());
        }
    }
}

fn check() -> Call {
    Call::Plain(1)
}

#[test]
fn memory_answers_immediately() {
    let limiter = Limiter::builder().build_async().expect("a limiter");
    let deliveries = Arc::new(Deliveries::default());
    let queue: Arc<dyn CompletionQueue> = deliveries.clone();
    let allowed =
        || limiter.post("2/hour", "a", &check(), 1, &queue, None).expect("an answer").expect("no error").allowed();
    assert_eq!([allowed(), allowed(), allowed()], [true, true, false]);
    let refused =
        limiter.post("2/hour", "a", &Call::Peek(Box::new(Cost::from(0).into())), 1, &queue, None).expect("an answer");
    assert_eq!(refused.expect_err("a cost of 0").code(), "cost_invalid");
    assert_eq!(deliveries.woken.load(Ordering::Relaxed), 0);
}

#[test]
fn redis_delivers_each_once_and_wakes_once_for_many() {
    let server = Servers::start(Kind::Single);
    // With a deny cache, repeated denials would be answered immediately.
    let limiter = Limiter::builder().store(server.url()).timeout(Duration::from_secs(20)).deny_cache(Duration::ZERO);
    let limiter = limiter.build_async().expect("one");
    let deliveries = Arc::new(Deliveries::default());
    let queue: Arc<dyn CompletionQueue> = deliveries.clone();
    for ticket in 0..5_000 {
        assert!(limiter.post("1000/hour", "a", &check(), ticket, &queue, None).is_none());
    }
    deliveries.wait_for(5_000);
    let allowed = |outcome: &Result<Outcome>| matches!(outcome, Ok(Outcome::Decision(decision)) if decision.allowed());
    assert_eq!(
        deliveries.delivered.lock().expect("no panic").values().filter(|outcome| allowed(outcome)).count(),
        1_000
    );
    let woken = deliveries.woken.load(Ordering::Relaxed);
    // The answers of one script call are delivered together.
    let calls = server.calls(0, "evalsha") as usize;
    assert!(woken <= calls + 1 && calls < 5_000, "{woken} wake-ups for 5,000 answers of {calls} calls");
}

#[test]
fn a_cancelled_task_leaves_the_wait_queue() {
    let clock = Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000)));
    let limiter = Limiter::builder().clock(Arc::clone(&clock)).build_async().expect("a limiter");
    let deliveries = Arc::new(Deliveries::default());
    let queue: Arc<dyn CompletionQueue> = deliveries.clone();
    let acquire = |ticket| {
        let limiter = limiter.clone();
        post_task(ticket, &queue, async move { limiter.acquire("1/hour", "a", 1, None).await.map(Outcome::Decision) })
            .expect("a task")
    };
    let _first = acquire(1);
    deliveries.wait_for(1);
    let second = acquire(2);
    while limiter.waiting("1/hour", "a") < 1 {
        std::thread::yield_now();
    }
    second.cancel();
    while limiter.waiting("1/hour", "a") > 0 {
        std::thread::yield_now();
    }
    let _third = acquire(3);
    clock.advance(Duration::from_secs(7_200));
    deliveries.wait_for(2);
    assert!(deliveries.delivered.lock().expect("no panic").contains_key(&3));
}
