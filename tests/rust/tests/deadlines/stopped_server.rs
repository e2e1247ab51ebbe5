//! Servers that are stopped, killed, restarted, or refuse to write.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::{CheckOptions, Decision, ErrorKind, Limiter, OnStoreError, Source};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::lateness::LatenessProbe;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::sockets::open_to;

use super::{POLICY, alone, builder, hammer, in_time, recovers, until};

#[test]
fn calls_end_in_time_while_the_server_is_stopped_and_when_it_is_gone() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let blocking = builder(redis.port(0)).build().expect("a limiter");
        let tasks = builder(redis.port(0)).build_async().expect("a limiter");
        hammer(&blocking, &tasks, Duration::from_millis(200), "before");
        redis.stop(0);
        hammer(&blocking, &tasks, Duration::from_millis(800), "stopped");
        redis.cont(0);
        recovers(redis.port(0), &blocking, &tasks, "stopped");
        redis.kill(0);
        hammer(&blocking, &tasks, Duration::from_millis(300), "killed");
        redis.start_again(0);
        recovers(redis.port(0), &blocking, &tasks, "killed");
        for connection in [100, 101] {
            redis.command(0, &["CLIENT", "PAUSE", "400", "ALL"]);
            hammer(&blocking, &tasks, Duration::from_millis(300), &format!("paused {connection}"));
            std::thread::sleep(Duration::from_millis(150));
            recovers(redis.port(0), &blocking, &tasks, "paused");
        }
    });
}

/// A server that continues after a stop runs the calls that reached it. These are at most the calls that were in flight.
#[test]
fn a_server_that_was_stopped_is_not_flooded_when_it_continues() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let patient = || builder(redis.port(0)).timeout(Duration::from_secs(1));
        let blocking = patient().build().expect("a limiter");
        let tasks = patient().fold(1).build_async().expect("a limiter");
        blocking.check(POLICY, "one").expect("a decision");
        runtime().block_on(tasks.check(POLICY, "two")).expect("a decision");
        redis.stop(0);
        let mut sent = 0;
        for _ in 0..3 {
            assert_eq!(blocking.check(POLICY, "one").expect_err("it is stopped").kind(), ErrorKind::StoreTimeout);
            sent += 1;
        }
        runtime().block_on(async {
            for _ in 0..3 {
                let error = tasks.check(POLICY, "two").await.expect_err("it is stopped");
                assert_eq!(error.kind(), ErrorKind::StoreTimeout);
            }
        });
        redis.cont(0);
        recovers(redis.port(0), &blocking, &tasks, "continued");
        let used = |key: &str| 1_000_000 - blocking.peek(POLICY, key, 1).expect("a peek").remaining();
        assert_eq!(sent, 3);
        assert!(used("one") <= 2, "the first ran late, the ones after it were not sent: {}", used("one"));
        assert!(used("two") <= 2, "the first ran late, the ones after it were not sent: {}", used("two"));
    });
}

/// Waits until this process can know that the server has ended all connections. A busy machine delivers that later than
/// the answer to the command that caused it. A check sent between the two is lost, and rightly reported as lost.
fn wait_until_ends_are_known(port: u16) {
    until("the ends of the connections have arrived", || open_to(port).is_none_or(|open| open == 0));
}

#[test]
fn a_restart_costs_idle_connections_no_error() {
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let builder = || Limiter::builder().store(redis.url()).timeout(Duration::from_secs(5)).bare();
        let blocking = Arc::new(builder().build().expect("a limiter"));
        let tasks = builder().build_async().expect("a limiter");
        let runtime = runtime();
        for _ in 0..5 {
            std::thread::scope(|scope| {
                (0..8).for_each(|_| drop(scope.spawn(|| blocking.check(POLICY, "k").expect("a decision"))));
            });
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.restart(0);
            wait_until_ends_are_known(redis.port(0));
            (0..8).for_each(|_| drop(blocking.check(POLICY, "k").expect("a decision")));
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.command(0, &["SCRIPT", "FLUSH"]);
            blocking.check(POLICY, "k").expect("a decision");
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
            redis.command(0, &["CLIENT", "KILL", "TYPE", "normal"]);
            wait_until_ends_are_known(redis.port(0));
            blocking.check(POLICY, "k").expect("a decision");
            runtime.block_on(tasks.check(POLICY, "k")).expect("a decision");
        }
    });
}

/// The store has granted the turn. A caller asks whether its key was blocked meanwhile, and loses nothing with that question.
#[test]
fn a_turn_is_used_in_time_when_the_server_stops_before_it() {
    const WAITS: Duration = Duration::from_millis(1_050);
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let choices = [OnStoreError::Local, OnStoreError::Open, OnStoreError::Closed, OnStoreError::Raise];
        let builder = |choice| Limiter::builder().store(redis.url()).on_store_error(choice).timeout(WAITS / 2);
        let patient =
            Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).build().expect("a limiter");
        let (probe, runtime, began) = (LatenessProbe::start(), runtime(), Barrier::new(2 * choices.len() + 1));
        let judge = |what: &str, call: &dyn Fn(&str, Duration) -> tidegate::Result<Decision>| {
            assert!(patient.check("gcra 1/s", what).expect("a decision").allowed());
            began.wait();
            let start = Instant::now();
            let decision = call(what, WAITS).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(decision.allowed() && decision.source() == Source::Store, "{what}: {decision:?}");
            (start.elapsed(), what.to_owned())
        };
        let calls: Vec<_> = std::thread::scope(|scope| {
            let calls = choices.into_iter().flat_map(|choice| {
                let (judge, runtime) = (&judge, &runtime);
                let thread = move || {
                    let limiter = builder(choice).build().expect("a limiter");
                    judge(&format!("{choice:?} of a thread"), &|key, timeout| {
                        limiter.acquire("gcra 1/s", key, 1, Some(timeout))
                    })
                };
                let task = move || {
                    let limiter = builder(choice).build_async().expect("a limiter");
                    let call =
                        |key: &str, timeout| runtime.block_on(limiter.acquire("gcra 1/s", key, 1, Some(timeout)));
                    judge(&format!("{choice:?} of a task"), &call)
                };
                [scope.spawn(thread), scope.spawn(task)]
            });
            let calls: Vec<_> = calls.collect();
            began.wait();
            std::thread::sleep(WAITS / 3);
            redis.stop(0);
            calls.into_iter().map(|call| call.join().expect("no panic")).collect()
        });
        let late = probe.worst();
        calls.iter().for_each(|(took, what)| in_time(*took, WAITS, late, what));
    });
}

/// The last question of a caller that waits in the line is asked shortly before its time is over, or at the end of it.
#[test]
fn a_wait_in_the_line_ends_in_time_when_the_server_stops_before_its_last_question() {
    const WAITS: Duration = Duration::from_millis(1_050);
    alone(|| {
        let redis = Servers::start(Kind::Single);
        let choices = [OnStoreError::Local, OnStoreError::Open, OnStoreError::Closed, OnStoreError::Raise];
        let policies = ["sliding-log 1/900ms", "concurrency 1 ttl 30s"];
        let patient =
            Limiter::builder().store(redis.url()).timeout(Duration::from_secs(10)).build().expect("a limiter");
        let (mut cases, mut holds) = (Vec::new(), Vec::new());
        for (choice, policy) in choices.into_iter().flat_map(|choice| policies.map(|policy| (choice, policy))) {
            for is_async in [false, true] {
                let key = format!("{policy}, {choice:?}, async: {is_async}");
                if policy.starts_with("concurrency") {
                    holds.push(patient.hold(policy, &key, 1).expect("an answer"));
                } else {
                    assert!(patient.check(policy, &key).expect("a decision").allowed());
                }
                cases.push((choice, policy, is_async, key));
            }
        }
        let (probe, began) = (LatenessProbe::start(), Barrier::new(cases.len() + 1));
        let waited: Vec<_> = std::thread::scope(|scope| {
            let calls = cases.iter().map(|(choice, policy, is_async, key)| {
                let (redis, began) = (&redis, &began);
                scope.spawn(move || {
                    let builder = Limiter::builder().store(redis.url()).on_store_error(*choice).timeout(WAITS / 2);
                    let (runtime, options) = (runtime(), CheckOptions::default());
                    let limiter = builder.build_async().expect("a limiter");
                    let blocking = limiter.to_blocking();
                    began.wait();
                    let start = Instant::now();
                    // The answer depends on `on_store_error`. Giving a hold back takes extra time, so that comes later.
                    let mut held = None;
                    match (policy.starts_with("concurrency"), is_async) {
                        (false, false) => drop(blocking.acquire(*policy, key, 1, Some(WAITS))),
                        (false, true) => drop(runtime.block_on(limiter.acquire(*policy, key, 1, Some(WAITS)))),
                        (true, false) => held = Some(blocking.hold_within(*policy, key, &options, Some(WAITS))),
                        (true, true) => {
                            held = Some(runtime.block_on(limiter.hold_within(*policy, key, &options, Some(WAITS))));
                        }
                    }
                    let took = start.elapsed();
                    drop(held);
                    (took, key)
                })
            });
            let calls: Vec<_> = calls.collect();
            began.wait();
            std::thread::sleep(WAITS * 4 / 5);
            redis.stop(0);
            calls.into_iter().map(|call| call.join().expect("no panic")).collect()
        });
        let late = probe.worst();
        redis.cont(0);
        waited.iter().for_each(|(took, what)| in_time(*took, WAITS, late, what));
    });
}

#[test]
fn a_ping_finds_what_the_command_ping_does_not() {
    alone(|| {
        let redis = Servers::start_with(
            Kind::Single,
            json!({"users": {"reader": "on nopass ~* +@read +@connection +evalsha +eval +time"}}),
        );
        let url = format!("redis://127.0.0.1:{}/0", redis.port(0));
        let both = |url: &str| {
            let builder = || Limiter::builder().store(url).timeout(Duration::from_secs(2)).bare();
            let blocking = builder().build().expect("a limiter").ping();
            let limiter = builder().build_async().expect("a limiter");
            let tasks = runtime().block_on(limiter.ping());
            assert_eq!(blocking.is_ok(), tasks.is_ok(), "{blocking:?} {tasks:?}");
            blocking
        };
        both(&url).expect("all is well");
        let life = redis.command(0, &["KEYS", "tg*"])[0].as_str().is_some();
        assert!(life, "it wrote a key");
        let error = both(&url.replace("127.", "reader:x@127.")).expect_err("it may not write");
        assert!(error.kind() == ErrorKind::StoreRejected && error.message().contains("the ACL user lacks"), "{error}");
        redis.command(0, &["CONFIG", "SET", "maxmemory", "1"]);
        let error = both(&url).expect_err("it is full");
        assert!(error.message().contains("OOM"), "{error}");
        redis.command(0, &["CONFIG", "SET", "maxmemory", "0"]);
        redis.command(0, &["CLIENT", "PAUSE", "5000", "WRITE"]);
        assert_eq!(both(&url).expect_err("it is paused").kind(), ErrorKind::StoreTimeout);
        redis.command(0, &["CLIENT", "UNPAUSE"]);
        redis.command(0, &["REPLICAOF", "127.0.0.1", "1"]);
        let error = both(&url).expect_err("it only reads");
        assert!(error.message().contains("READONLY"), "{error}");
        redis.command(0, &["REPLICAOF", "NO", "ONE"]);
        both(&url).expect("all is well again");
    });
}
