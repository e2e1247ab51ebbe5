//! Turns: how `acquire` waits for buckets. docs/adr/0036 has the invariants.

mod histories;
mod over_processes;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::{AsyncLimiter, Cost, Decision, Limiter, ManualClock, Options, Policy, Result};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::{wait_closely, wait_until};

const START: Duration = Duration::from_secs(1_800_000_000);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A limiter with its own clock.
fn limiter(url: &str) -> (AsyncLimiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START));
    let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
    (builder.build_async().expect("a limiter"), clock)
}

/// One for each store.
fn limiters() -> (Servers, Vec<(AsyncLimiter, Arc<ManualClock>)>) {
    let redis = Servers::start(Kind::Single);
    let limiters = vec![limiter("memory://"), limiter(redis.url())];
    (redis, limiters)
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Decision>>>>;

/// A caller in `acquire`, which is driven by hand.
struct Caller(Option<Acquiring>);

impl Caller {
    /// Asks for a turn, and returns when it has one or its answer.
    fn asks(limiter: &AsyncLimiter, policy: &Policy, key: &str, cost: Cost, timeout: Option<Duration>) -> Self {
        let (asking, policy, key) = (limiter.clone(), policy.clone(), key.to_owned());
        let call: Acquiring = Box::pin(async move { asking.acquire_with(&policy, &key, &cost.into(), timeout).await });
        let mut caller = Self(Some(call));
        caller.polled();
        caller
    }

    fn polled(&mut self) -> Option<Decision> {
        let call = self.0.as_mut()?;
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => {
                self.0 = None;
                Some(decision.expect("a decision"))
            }
            Poll::Pending => None,
        }
    }

    /// Its Decision, which comes while the clock stands still.
    fn decision(&mut self) -> Decision {
        let mut decision = None;
        wait_closely(Duration::from_secs(10), "it has a decision", || {
            decision = decision.take().or_else(|| self.polled());
            decision.is_some()
        });
        decision.expect("it was waited for")
    }

    fn gives_up(&mut self) {
        self.0 = None;
    }
}

/// A caller that waits for its turn.
fn sleeper(limiter: &AsyncLimiter, policy: &Policy, cost: u64) -> Caller {
    let waiting = limiter.waiting(policy, "k");
    let mut caller = Caller::asks(limiter, policy, "k", Cost::from(cost), None);
    wait_until(Duration::from_secs(10), "it has a turn", || {
        assert!(caller.polled().is_none(), "it has to wait");
        limiter.waiting(policy, "k") > waiting
    });
    caller
}

fn policy(notation: &str) -> Policy {
    Policy::parse(notation).expect("a policy")
}

fn check(limiter: &AsyncLimiter, policy: &Policy, cost: u64) -> Decision {
    limiter.to_blocking().check_n(policy, "k", cost).expect("a decision")
}

#[test]
fn a_turn_is_the_first_moment_at_which_every_bucket_admits_it() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 2; token-bucket 10/minute burst 10");
        assert!(check(limiter, &policy, 2).allowed());
        let mut callers: Vec<Caller> = (0..10).map(|_| sleeper(limiter, &policy, 1)).collect();
        // Two units of the second bucket are used. After eight more it has one each six seconds.
        let moments = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12].map(|moment: u64| START + Duration::from_secs(moment));
        let mut moments = moments.into_iter();
        for caller in &mut callers {
            let moment = moments.next().expect("ten");
            clock.set(moment - Duration::from_micros(1));
            assert!(caller.polled().is_none(), "it is not its turn");
            clock.set(moment);
            let decision = caller.decision();
            assert_eq!((decision.allowed(), decision.at(), decision.granted()), (true, moment, 1));
        }
    }
}

#[test]
fn a_check_sees_a_turn_as_used_and_a_late_one_is_denied_with_its_exact_wait() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 1");
        assert!(check(limiter, &policy, 1).allowed());
        let mut first = sleeper(limiter, &policy, 1);
        let denied = check(limiter, &policy, 1);
        assert_eq!((denied.allowed(), denied.retry_after()), (false, Some(seconds(2.0))));
        let late = limiter.to_blocking().acquire(&policy, "k", 1, Some(seconds(1.9))).expect("a decision");
        assert_eq!((late.allowed(), late.retry_after()), (false, Some(seconds(2.0))), "at once");
        let never = limiter.to_blocking().acquire(&policy, "k", 2, None).expect("a decision");
        assert_eq!((never.allowed(), never.retry_after()), (false, None));
        let mut in_time = Caller::asks(limiter, &policy, "k", Cost::from(1), Some(seconds(2.0)));
        wait_until(Duration::from_secs(10), "it has a turn", || {
            assert!(in_time.polled().is_none());
            limiter.waiting(&policy, "k") == 2
        });
        clock.advance(seconds(1.0));
        assert!(first.decision().allowed());
        clock.advance(seconds(1.0));
        assert!(in_time.decision().allowed());
    }
}

#[test]
fn a_turn_given_up_goes_to_the_next_of_no_larger_cost() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 3");
        assert!(check(limiter, &policy, 3).allowed());
        let mut callers: Vec<Caller> = [1, 2, 1, 1].map(|cost| sleeper(limiter, &policy, cost)).into();
        // Their turns are at 1, 3, 4 and 5 seconds. The second wants more than the first has.
        callers[0].gives_up();
        for (seconds, caller) in [(1, 2), (3, 1), (4, 3)] {
            clock.set(START + Duration::from_secs(seconds));
            let decision = callers[caller].decision();
            assert_eq!(decision.at(), START + Duration::from_secs(seconds), "caller {caller}");
            assert_eq!(limiter.waiting(&policy, "k"), callers.iter().filter(|caller| caller.0.is_some()).count());
        }
        // The last turn, at 5 seconds, went back: nothing was charged behind it.
        clock.advance(seconds(1.0));
        wait_until(Duration::from_secs(10), "there is a unit", || {
            let left = limiter.to_blocking().peek(&policy, "k", 1).expect("a peek");
            assert!(left.remaining() <= 1);
            left.remaining() == 1
        });
    }
}

#[test]
fn a_turn_behind_which_something_was_charged_is_lost() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 1");
        assert!(check(limiter, &policy, 1).allowed());
        let mut given_up = sleeper(limiter, &policy, 1);
        // A turn in another process.
        let url = limiter.to_blocking();
        url.charge(&policy, "k", 1).expect("a decision");
        given_up.gives_up();
        wait_until(Duration::from_secs(10), "it has left", || limiter.waiting(&policy, "k") == 0);
        let denied = check(limiter, &policy, 1);
        assert_eq!(denied.retry_after(), Some(seconds(3.0)), "the turn and the charge are still charged");
        clock.advance(seconds(3.0));
        assert!(check(limiter, &policy, 1).allowed());
    }
}

#[test]
fn a_sleeper_whose_key_is_blocked_takes_another_turn() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 1");
        assert!(check(limiter, &policy, 1).allowed());
        let mut blocked = sleeper(limiter, &policy, 1);
        let blocking = limiter.to_blocking();
        blocking.block(&policy, "k", seconds(10.0)).expect("it is blocked");
        clock.advance(seconds(1.0));
        wait_until(Duration::from_secs(10), "it has another turn", || {
            assert!(blocked.polled().is_none(), "it does not go while the key is blocked");
            limiter.waiting(&policy, "k") == 1
        });
        clock.advance(seconds(9.0));
        let decision = blocked.decision();
        assert!(decision.allowed() && decision.at() >= START + seconds(10.0), "{:?}", decision.at());
    }
}

#[test]
fn a_turn_in_a_block_is_at_its_end_and_leaves_the_block() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 1");
        limiter.to_blocking().block(&policy, "k", seconds(10.0)).expect("it is blocked");
        let mut callers: Vec<Caller> = (0..2).map(|_| sleeper(limiter, &policy, 1)).collect();
        assert_eq!(check(limiter, &policy, 1).retry_after(), Some(seconds(12.0)));
        for moment in [10, 11] {
            clock.set(START + Duration::from_secs(moment));
            assert_eq!(callers.remove(0).decision().at(), START + Duration::from_secs(moment));
        }
    }
}

#[test]
fn a_clear_does_not_recall_a_turn_and_its_settle_gives_nothing_back() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 5");
        let blocking = limiter.to_blocking();
        assert!(check(limiter, &policy, 5).allowed());
        let mut sleeping = sleeper(limiter, &policy, 2);
        clock.advance(seconds(1.0));
        blocking.clear(&policy, "k").expect("it is cleared");
        assert!(check(limiter, &policy, 5).allowed(), "nothing is used");
        clock.advance(seconds(1.0));
        let decision = sleeping.decision();
        assert!(decision.allowed());
        blocking.settle(&decision, 0).expect("it is settled");
        assert_eq!(blocking.peek(&policy, "k", 1).expect("a peek").remaining(), 1, "one of five has drained");
    }
}

#[test]
fn a_settle_of_a_turn_returns_what_has_not_drained_since() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 5");
        let blocking = limiter.to_blocking();
        assert!(check(limiter, &policy, 5).allowed());
        let mut sleeping = sleeper(limiter, &policy, 4);
        clock.advance(seconds(4.0));
        let decision = sleeping.decision();
        assert_eq!(blocking.peek(&policy, "k", 1).expect("a peek").remaining(), 0);
        clock.advance(seconds(1.0));
        blocking.settle(&decision, 1).expect("it is settled");
        // Five of nine units have drained. Three of the turn's four units go back.
        assert_eq!(blocking.peek(&policy, "k", 1).expect("a peek").remaining(), 4);
    }
}

#[test]
fn a_caller_that_is_gone_before_its_answer_leaves_no_turn() {
    let redis = Servers::start(Kind::Single);
    let clock = Arc::new(ManualClock::new(START));
    let builder = Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).clock(Arc::clone(&clock));
    let limiter = builder.build_async().expect("a limiter");
    let limits = policy("gcra 1/s burst 1").limits().to_vec();
    let policy = Policy::new(limits, Options { journal: 9, ..Options::default() }).expect("a policy");
    assert!(check(&limiter, &policy, 1).allowed());
    {
        let mut call = pin!(limiter.acquire(&policy, "k", 1, None));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let attempts = || limiter.to_blocking().journal(&policy, "k").expect("a journal").len();
    wait_until(Duration::from_secs(10), "the store has given the turn", || attempts() == 2);
    let wait = || limiter.to_blocking().peek(&policy, "k", 1).expect("a peek").next_after();
    wait_until(Duration::from_secs(10), "its unit is back", || wait() == Some(seconds(1.0)));
}

#[test]
fn what_goes_back_leaves_turns_that_are_to_come_where_they_are() {
    let (_redis, limiters) = limiters();
    for (limiter, clock) in &limiters {
        let policy = policy("gcra 1/s burst 1");
        let blocking = limiter.to_blocking();
        for plain in [false, true] {
            clock.set(START);
            blocking.clear(&policy, "k").expect("it is cleared");
            let first = check(limiter, &policy, 1);
            let mut callers: Vec<Caller> = (0..2).map(|_| sleeper(limiter, &policy, 1)).collect();
            if plain {
                blocking.refund(&policy, "k", 1).expect("a refund");
            } else {
                blocking.settle(&first, 0).expect("it is settled");
            }
            clock.advance(seconds(1.0));
            let earlier = callers.remove(0).decision();
            assert_eq!(check(limiter, &policy, 1).retry_after(), Some(seconds(2.0)), "turns at 1 and 2 s are used");
            clock.advance(seconds(0.5));
            blocking.settle(&earlier, 0).expect("it is settled");
            clock.advance(seconds(0.5));
            let last = callers.remove(0).decision();
            assert_eq!(check(limiter, &policy, 1).retry_after(), Some(seconds(1.0)));
            // Nothing has a moment after the last turn.
            blocking.settle(&last, 0).expect("it is settled");
            assert!(check(limiter, &policy, 1).allowed());
        }
    }
}
