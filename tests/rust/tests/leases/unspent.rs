//! The unspent units of a block go back to the server: when its time is over, and when the limiter is closed.

use std::time::Duration;

use tidegate::{Lease, Limiter, Options, Policy, Source};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

fn limiter(url: &str) -> Limiter {
    Limiter::builder().store(url).timeout(PATIENCE).build().expect("a limiter")
}

/// Checks until some units were leased, and returns how many checks were admitted.
fn spend(limiter: &Limiter, policy: &Policy, key: &str) -> u64 {
    let (mut admitted, mut leased) = (0, 0);
    while leased < 1_000 {
        let decision = limiter.check(policy, key).expect("a decision");
        admitted += u64::from(decision.allowed());
        leased += u64::from(decision.source() == Source::Lease);
    }
    admitted
}

#[test]
fn units_that_were_not_spent_go_back() {
    let redis = Servers::start(Kind::Single);
    let limits = Policy::parse("fixed-window 1000000/hour").expect("a notation").limits().to_vec();
    let lease = Some(Lease::percent(5.0).expect("a lease"));
    let policy = Policy::new(limits, Options { lease, ..Options::default() }).expect("a policy");
    let (first, other) = (limiter(redis.url()), limiter(redis.url()));
    let is_back = |key: &str, admitted: u64| {
        wait_until(PATIENCE, "what was not spent is back", || {
            let left = other.peek(&policy, key, 1).expect("a peek").remaining();
            assert!(left <= 1_000_000 - admitted, "{left} are left, and {admitted} were admitted");
            left == 1_000_000 - admitted
        });
    };
    let admitted = spend(&first, &policy, "ends");
    is_back("ends", admitted);
    // The thread that gives blocks back has slept meanwhile.
    let more = spend(&first, &policy, "ends");
    is_back("ends", admitted + more);

    let admitted = spend(&first, &policy, "closed");
    first.close();
    is_back("closed", admitted);
}
