//! `check_all` over the slots of a cluster.

use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wall_clock::wait_out_the_end_of_an_hour;

use super::{both, builder, used};

#[test]
fn check_all_over_slots_charges_all_or_nothing() {
    let cluster = Servers::start(Kind::Cluster);
    for (way, limiter) in both(cluster.url()).into_iter().enumerate() {
        let entry = |policy: &str, key: String, cost| (policy.to_owned(), key, cost);
        let many: Vec<_> = (0..20).map(|number| entry("5/hour", format!("{way} k{number}"), 1)).collect();
        for round in 1..=5 {
            let decision = limiter.check_all(&many).expect("a decision");
            assert!(decision.allowed());
            assert!(decision.decisions().iter().all(|one| one.remaining() == 5 - round));
        }
        let decision = limiter.check_all(&many).expect("a decision");
        assert!(!decision.allowed() && decision.decisions().len() == 20);
        let mixed =
            [entry("9/hour", format!("{way} fresh"), 2), many[0].clone(), entry("9/hour", format!("{way} other"), 3)];
        for _ in 0..3 {
            let decision = limiter.check_all(&mixed).expect("a decision");
            assert!(!decision.allowed());
            assert_eq!(decision.decisions()[0].remaining(), 9, "nothing was charged");
        }
        assert_eq!(limiter.peek("9/hour", &format!("{way} other"), 1).expect("a peek").remaining(), 9);
    }
}

/// Threads race for the last units of several keys: the charged and refunded units add up exactly.
#[test]
fn check_all_over_slots_refunds_what_a_lost_race_charged() {
    let cluster = Servers::start(Kind::Cluster);
    let policies = [
        "fixed-window 40/hour",
        "sliding-window 40/hour",
        "sliding-log 40/hour",
        "sliding-counter 40/hour",
        "gcra 40/year",
        "token-bucket 40/year",
        "leaky-bucket 40/year",
        "calendar-window 40/year",
    ];
    let limiter = builder(cluster.url()).build().expect("a limiter");
    wait_out_the_end_of_an_hour();
    for policy in policies {
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        // The fifth key has fewer units: it refuses after the others have charged.
                        let entries = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("short", 4)];
                        let all = || limiter.check_all(entries.map(|(key, cost)| (policy, key, cost)));
                        (0..8).filter(|_| all().expect("a decision").allowed()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(passed, 10, "{policy}: forty units in steps of four");
        for key in ["a", "b", "c", "d"] {
            let used = used(&limiter.peek(policy, key, 1).expect("a peek"));
            assert_eq!(used, 10, "{policy}: {key}");
        }
    }
}
