//! A store that is back serves within a second.

use std::time::Duration;

use tidegate::{Limiter, Source};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::lateness::RecoveryControl;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::servers::{Kind, Servers};

use crate::resilience::{ChangeLog, soon};

fn source_of_a_check(limiter: &Limiter) -> Source {
    limiter.check("1000000/hour", "k").expect("a decision").source()
}

#[test]
fn recovery_takes_less_than_a_second_after_a_kill_and_after_a_stop() {
    let server = Servers::start(Kind::Single);
    let changes = ChangeLog::default();
    let builder = Limiter::builder().store(server.url()).timeout(Duration::from_secs(1));
    let limiter = changes.record(builder).build().expect("a limiter");
    soon("the server answers", || limiter.ping().is_ok());
    for round in 0..4 {
        if round % 2 == 0 {
            server.kill(0)
        } else {
            server.stop(0)
        }
        soon("it is lost", || {
            source_of_a_check(&limiter);
            changes.all().len() == 2 * round + 1
        });
        if round % 2 == 0 {
            server.start_again(0)
        } else {
            server.cont(0)
        }
        let control = RecoveryControl::start(server.port(0));
        soon("it is back", || source_of_a_check(&limiter) == Source::Store);
        control.judge(&format!("round {round}"));
        soon("the change is reported", || changes.all().len() == 2 * round + 2);
    }
    assert_eq!(changes.states(), ["lost", "back"].repeat(4), "each change once");
    let counters = limiter.counters();
    assert_eq!((counters.lost, counters.store_rejected), (4, 0), "{counters:?}");
    assert!(counters.fallback_local > 0 && counters.fallback_open + counters.fallback_closed == 0);
    for change in changes.all() {
        assert!(
            change.store.starts_with("redis://127.0.0.1:") && change.sentence.contains(&change.store),
            "{change:?}"
        );
    }
}

/// A call that began shortly before the network recovered is never answered: recovery must not wait for it.
#[test]
fn recovery_takes_less_than_a_second_also_where_calls_may_take_long() {
    const LONG: Duration = Duration::from_secs(2);
    let server = Servers::start(Kind::Single);
    for condition in [Condition::DropReplies, Condition::StallReplies, Condition::Silent] {
        let proxy = Proxy::to(server.port(0));
        let changes = ChangeLog::default();
        let builder = Limiter::builder().store(format!("redis://127.0.0.1:{}", proxy.port())).timeout(LONG);
        let limiter = changes.record(builder).build().expect("a limiter");
        let runtime = runtime();
        let tasks = limiter.to_async();
        let source_of_an_async_check =
            || runtime.block_on(tasks.check("1000000/hour", "k")).expect("a decision").source();
        assert_eq!((source_of_a_check(&limiter), source_of_an_async_check()), (Source::Store, Source::Store));
        proxy.set(condition);
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| source_of_a_check(&limiter))));
            assert_eq!(source_of_an_async_check(), Source::Fallback);
        });
        soon("it is lost", || changes.states() == ["lost"]);
        // The first probes are in flight.
        std::thread::sleep(Duration::from_millis(150));
        proxy.set(Condition::Healthy);
        let control = RecoveryControl::start(proxy.port());
        soon("it answers threads", || source_of_a_check(&limiter) == Source::Store);
        soon("it answers tasks", || source_of_an_async_check() == Source::Store);
        control.judge(&format!("{condition:?}"));
        soon("the change is reported", || changes.states() == ["lost", "back"]);
        assert_eq!(limiter.counters().lost, 1);
    }
}
