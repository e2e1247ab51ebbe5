//! A learned limit never admits a call earlier, and ends at the moment that the response announced.

use std::sync::Arc;
use std::time::Duration;

use tidegate::http::Observation;
use tidegate::{Limiter, ManualClock, Policy};
use tidegate_tests::random::Random;

use super::{SECOND, START};

fn limiter() -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Duration::from_micros(START)));
    (Limiter::builder().clock(Arc::clone(&clock)).build().expect("a limiter"), clock)
}

fn said(limit: u64, remaining: u64, reset: u64) -> Observation {
    let mut said = Observation::default();
    (said.limit, said.remaining, said.reset_after) = (Some(limit), Some(remaining), Some(Duration::from_secs(reset)));
    said
}

#[test]
fn usage_is_raised_and_leaves_at_its_reset() {
    let (limiter, clock) = limiter();
    limiter.observe("10/minute", "k", vec![said(10, 3, 30)], None).expect("learned");
    let seen = limiter.peek("10/minute", "k", 1).expect("a peek");
    assert_eq!((seen.limit(), seen.remaining(), seen.learned()), (10, 3, true));
    for _ in 0..3 {
        assert!(limiter.check("10/minute", "k").expect("an answer").allowed());
    }
    let denied = limiter.check("10/minute", "k").expect("an answer");
    assert_eq!((denied.allowed(), denied.retry_after()), (false, Some(Duration::from_secs(30))));
    clock.advance(Duration::from_secs(30));
    // Three were charged, so seven are left of the policy itself.
    let after = limiter.peek("10/minute", "k", 1).expect("a peek");
    assert_eq!((after.remaining(), after.learned()), (7, false));
}

#[test]
fn what_is_said_later_never_lowers() {
    let (limiter, clock) = limiter();
    limiter.observe("10/minute", "k", vec![said(10, 5, 60)], None).expect("learned");
    limiter.observe("10/minute", "k", vec![said(10, 0, 10)], None).expect("learned");
    limiter.observe("10/minute", "k", vec![said(10, 10, 90)], None).expect("learned");
    let remaining = || limiter.peek("10/minute", "k", 1).expect("a peek").remaining();
    assert_eq!(remaining(), 0);
    clock.advance(Duration::from_secs(10));
    assert_eq!(remaining(), 5);
    clock.advance(Duration::from_secs(50));
    assert_eq!(remaining(), 10);
}

#[test]
fn a_wait_blocks_and_is_never_shortened() {
    let (limiter, clock) = limiter();
    let wait = |seconds| {
        let mut said = Observation::default();
        said.retry_after = Some(Duration::from_secs(seconds));
        vec![said]
    };
    let policy = Policy::learned().expect("a policy");
    limiter.observe(&policy, "k", wait(20), None).expect("learned");
    limiter.observe(&policy, "k", wait(5), None).expect("learned");
    let denied = limiter.check(&policy, "k").expect("an answer");
    assert_eq!((denied.learned(), denied.retry_after()), (true, Some(Duration::from_secs(20))));
    clock.advance(Duration::from_secs(20));
    assert!(limiter.check(&policy, "k").expect("an answer").allowed());
}

#[test]
fn a_lower_limit_of_the_other_side_holds_in_the_next_windows() {
    let (limiter, clock) = limiter();
    let policy = Policy::parse("100/10s").and_then(|policy| policy.paced(Duration::ZERO)).expect("a policy");
    let mut halved = said(50, 50, 10);
    halved.window = Some(Duration::from_secs(10));
    limiter.observe(&policy, "k", vec![halved], None).expect("learned");
    for _ in 0..3 {
        clock.advance(Duration::from_secs(11));
        let admitted = (0..100).filter(|_| limiter.check(&policy, "k").expect("an answer").allowed()).count();
        assert_eq!(admitted, 50);
    }
}

#[test]
fn a_raised_limit_leaves_no_more_until_the_last_reset() {
    let (limiter, clock) = limiter();
    limiter.observe("10/hour", "k", vec![said(2, 2, 30)], None).expect("learned");
    limiter.observe("10/hour", "k", vec![said(10, 10, 5)], None).expect("learned");
    let remaining = || limiter.peek("10/hour", "k", 1).expect("a peek").remaining();
    clock.advance(Duration::from_secs(29));
    assert_eq!(remaining(), 2);
    clock.advance(Duration::from_secs(1));
    assert_eq!(remaining(), 10);
}

/// No answer becomes better after an observation, whatever it is and in whatever order they come.
#[test]
fn nothing_that_is_said_adds_quota() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let (limiter, clock) = limiter();
        let count = random.below(30) + 1;
        let policy = Policy::parse(&format!("{count}/10s")).expect("a policy");
        let limit = random.below(40) + 1;
        for _ in 0..20 {
            let pause = random.below(2 * SECOND);
            clock.advance(Duration::from_micros(pause));
            if random.one_in(2) {
                limiter.check(&policy, "k").expect("an answer");
                continue;
            }
            let before = limiter.peek(&policy, "k", 1).expect("a peek");
            let mut heard = said(limit, random.below(40), random.below(12) + 1);
            heard.remaining = heard.remaining.map(|left| left.min(heard.limit.unwrap_or(0)));
            heard.retry_after = random.one_in(4).then(|| Duration::from_micros(random.below(5 * SECOND)));
            limiter.observe(&policy, "k", vec![heard], None).expect("learned");
            let after = limiter.peek(&policy, "k", 1).expect("a peek");
            let ends = |wait: Option<Duration>| wait.expect("a wait");
            assert!(after.remaining() <= before.remaining(), "seed {seed}: {before:?} {after:?}");
            assert!(ends(after.next_after()) >= ends(before.next_after()), "seed {seed}: {before:?} {after:?}");
        }
    }
}

#[test]
fn a_key_learns_of_eight_limits_at_most() {
    let (limiter, _) = limiter();
    for number in 0..100 {
        let mut heard = said(10, 0, 60);
        heard.name = Some(format!("limit {number}"));
        limiter.observe("10/minute", "k", vec![heard; 3], None).expect("learned");
    }
    assert!(!limiter.check("10/minute", "k").expect("an answer").allowed());
}
