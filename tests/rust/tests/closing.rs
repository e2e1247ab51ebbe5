//! A limiter that is closed ends what waits.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidegate::{Limiter, ManualClock};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

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
