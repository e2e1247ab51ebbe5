//! Every condition of the network.

use std::time::Duration;

use tidegate_tests::any_limiter::runtime;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use super::{POLICY, alone, builder, hammer, recovers};

#[test]
fn calls_end_in_time_in_every_condition() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let proxy = Proxy::to(redis.port(0));
        let blocking = builder(proxy.port()).build().expect("a limiter");
        let tasks = builder(proxy.port()).build_async().expect("a limiter");
        let conditions = [
            ("healthy", Condition::Healthy),
            ("slow", Condition::Slow(Duration::from_millis(60))),
            ("too slow", Condition::Slow(Duration::from_millis(200))),
            ("silent", Condition::Silent),
            ("drop replies", Condition::DropReplies),
            ("cut replies", Condition::CutReplies),
            ("stall replies", Condition::StallReplies),
            ("trickle replies", Condition::TrickleReplies(Duration::from_millis(10))),
            ("refuse", Condition::Refuse),
        ];
        for (what, condition) in conditions {
            proxy.set(condition);
            let (_, done) = hammer(&blocking, &tasks, Duration::from_millis(600), what);
            proxy.set(Condition::Healthy);
            recovers(proxy.port(), &blocking, &tasks, what);
            assert!(done > 0 || !matches!(what, "healthy" | "slow"), "{what}: some calls are answered");
        }
    });
}

#[test]
fn a_call_whose_reply_is_lost_is_not_sent_again() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let proxy = Proxy::to(redis.port(0));
        let patient = |port: u16| builder(port).timeout(Duration::from_secs(1));
        let direct = patient(redis.port(0)).build().expect("a limiter");
        for condition in [Condition::DropReplies, Condition::CutReplies, Condition::StallReplies] {
            let blocking = patient(proxy.port()).build().expect("a limiter");
            let tasks = patient(proxy.port()).build_async().expect("a limiter");
            blocking.check(POLICY, "warm").expect("a decision");
            runtime().block_on(tasks.check(POLICY, "warm")).expect("a decision");
            for turn in 0..2 {
                proxy.set(condition);
                let (one, two) = (format!("{condition:?} one {turn}"), format!("{condition:?} two {turn}"));
                let first = blocking.check(POLICY, &one);
                let second = runtime().block_on(tasks.check(POLICY, &two));
                assert!(first.is_err() && second.is_err(), "{condition:?}: the answer was lost");
                proxy.set(Condition::Healthy);
                recovers(proxy.port(), &blocking, &tasks, "lost");
                for key in [one, two] {
                    let used = 1_000_000 - direct.peek(POLICY, &key, 1).expect("a peek").remaining();
                    assert!(used <= 1, "{condition:?}: counted {used} times");
                }
            }
        }
    });
}
