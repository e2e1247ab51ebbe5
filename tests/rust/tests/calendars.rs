//! Custom calendars on a real server. Its clock decides, and the core sends it the edges around the time that it expects.

use std::time::Duration;

use serde_json::json;
use tidegate::{AsyncLimiter, Limiter, OnStoreError, Policy};
use tidegate_tests::model::window;
use tidegate_tests::servers::{Kind, Servers};

/// A zone where the day does not end for hours, now and after a jump of whole days. Tests run at any time.
fn quiet_zone() -> &'static str {
    let hour =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() / 3_600 % 24;
    match hour {
        3..=15 => "Etc/GMT",
        _ => "Etc/GMT+12",
    }
}

fn builder(servers: &Servers) -> tidegate::Builder {
    let builder = Limiter::builder().store(servers.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::ZERO);
    builder.on_store_error(OnStoreError::Raise)
}

/// The result of `call`, and the number of script calls that it made.
fn calls<T>(servers: &Servers, call: impl FnOnce() -> T) -> (T, u64) {
    let before = servers.calls(0, "evalsha");
    let result = call();
    (result, servers.calls(0, "evalsha") - before)
}

/// The number of checks that are admitted before a denial, out of twelve.
fn admitted(limiter: &Limiter, policy: &Policy, key: &str) -> usize {
    (0..12).take_while(|_| limiter.check(policy, key).expect("a decision").allowed()).count()
}

#[test]
fn a_server_of_another_time_says_it_and_is_asked_again_once() {
    let servers = Servers::start_with(Kind::Single, json!({"clock": true}));
    let limiter = builder(&servers).build().expect("a limiter");
    limiter.check("5/s", "warm").expect("a decision");
    for limits in ["", "; 1000/s", "; gcra 1000/s; calendar-window 1000/month from day 15 at 06:00"] {
        let policy = Policy::parse(&format!("calendar-window 10/day from at 00:01 in {}{limits}", quiet_zone()))
            .expect("a policy");
        // The server may not have the script yet.
        limiter.check(&policy, "first").expect("a decision");
        let (decision, count) = calls(&servers, || limiter.check(&policy, "k").expect("a decision"));
        assert_eq!((decision.remaining(), count), (9, 1), "{limits}: edges around this machine's time");
        for jump in [40.0 * 86_400.0, -100.0 * 86_400.0, 60.0 * 86_400.0] {
            servers.clock(0, jump);
            let key = format!("{jump}");
            let (decision, count) = calls(&servers, || limiter.check(&policy, &key).expect("a decision"));
            assert_eq!((decision.remaining(), count), (9, 2), "{limits} {jump}");
            let (decision, count) = calls(&servers, || limiter.check(&policy, &key).expect("a decision"));
            assert_eq!((decision.remaining(), count), (8, 1), "{limits} {jump}: the server's time is known");
            assert_eq!(admitted(&limiter, &policy, &key), 8);
            let entries = [(&policy, "k", 1), (&policy, key.as_str(), 1)];
            assert!(!limiter.check_all(entries).expect("a decision").allowed());
        }
    }
}

#[tokio::test]
async fn waiting_calls_of_several_policies_are_asked_again_too() {
    let servers = Servers::start_with(Kind::Single, json!({"clock": true}));
    let limiter: AsyncLimiter = builder(&servers).build_async().expect("a limiter");
    let notation =
        |number: usize| format!("calendar-window {}/month from day {} in Asia/Kathmandu", 100 + number, 2 + number);
    limiter.check("5/s", "warm").await.expect("a decision");
    for jump in [0.0, 90.0 * 86_400.0, -200.0 * 86_400.0] {
        servers.clock(0, jump);
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..60 {
            let limiter = limiter.clone();
            let (policy, key) = (notation(number % 3), format!("{jump} {}", number % 4));
            waiting.spawn(async move { limiter.check(policy.as_str(), &key).await });
        }
        while let Some(done) = waiting.join_next().await {
            assert!(done.expect("a task ends").expect("a decision").allowed(), "{jump}");
        }
        for (number, key) in (0..3).flat_map(|number| (0..4).map(move |key| (number, key))) {
            let peeked =
                limiter.peek(notation(number).as_str(), &format!("{jump} {key}"), 1).await.expect("a decision");
            assert_eq!(peeked.limit() - peeked.remaining(), 5, "{jump} {number} {key}");
        }
    }
}

#[tokio::test]
async fn a_window_that_ends_while_calls_wait_ends_for_each_of_them() {
    let servers = Servers::start_with(Kind::Single, json!({"clock": true}));
    let limiter: AsyncLimiter = builder(&servers).build_async().expect("a limiter");
    let policy =
        Policy::parse("calendar-window 100/day in Asia/Kathmandu").expect("a policy").named("p").expect("a name");
    let now = limiter.peek(&policy, "k", 1).await.expect("a decision").at();
    let edge = window(&policy.limits()[0], now.as_micros() as u64).1;
    servers.clock(0, (edge - now.as_micros() as u64) as f64 / 1e6 - 3.0);
    let mut admitted = Vec::new();
    loop {
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            waiting.spawn(async move { limiter.check(&policy, "k").await });
        }
        let mut last = 0;
        while let Some(done) = waiting.join_next().await {
            let decision = done.expect("a task ends").expect("a decision");
            last = decision.at().as_micros() as u64;
            if decision.allowed() {
                admitted.push(last);
            }
        }
        if last > edge + 1_000_000 {
            break;
        }
    }
    let after = admitted.iter().filter(|at| **at >= edge).count();
    assert_eq!((admitted.len() - after, after), (100, 100), "in the window before the edge, and in the one behind it");
}

#[test]
fn a_key_lives_as_long_as_its_window() {
    let servers = Servers::start(Kind::Single);
    let limiter = builder(&servers).build().expect("a limiter");
    for policy in
        ["calendar-window 10/day in Asia/Tokyo", "calendar-window 10/year from day 20 at 07:30 in Europe/Berlin"]
    {
        let decision = limiter.check(policy, "k").expect("a decision");
        let mut connection = servers.connection(0);
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("keys");
        let ttl: u64 = redis::cmd("PTTL").arg(&keys[0]).query(&mut connection).expect("a time");
        let reset = decision.reset_after().as_millis() as u64;
        assert!((reset - 5_000..=reset + 1_000).contains(&ttl), "{policy}: {ttl} ms and {reset} ms");
        limiter.clear_all().expect("nothing is kept");
    }
}

#[test]
fn a_denial_notes_the_last_charge_of_a_window_of_utc_once() {
    let servers = Servers::start(Kind::Single);
    let limiter = builder(&servers).build().expect("a limiter");
    let version = |notation: &str| Policy::parse(notation).and_then(|policy| policy.named("p")).expect("a policy");
    let (utc, own) = (version("calendar-window 3/month"), version("calendar-window 3/month from day 9 in Asia/Tokyo"));
    assert_eq!(admitted(&limiter, &utc, "k"), 3);
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut servers.connection(0)).expect("keys");
    let value = || -> Vec<u8> { redis::cmd("GET").arg(&keys[0]).query(&mut servers.connection(0)).expect("a value") };
    let (plain, writes) = (value(), servers.calls(0, "set"));
    assert!(!limiter.peek(&own, "k", 1).expect("a decision").allowed());
    assert_eq!((value(), servers.calls(0, "set")), (plain.clone(), writes), "a peek writes nothing");
    let first = limiter.check(&own, "k").expect("a decision");
    assert!(!first.allowed() && value() != plain);
    assert_eq!(servers.calls(0, "set"), writes + 1);
    let second = limiter.check(&own, "k").expect("a decision");
    assert_eq!(
        (second.reset_at(), servers.calls(0, "set")),
        (first.reset_at(), writes + 1),
        "the next one writes nothing"
    );
    // The other version reads the same, and it writes nothing either.
    assert!(!limiter.check(&utc, "k").expect("a decision").allowed());
    assert_eq!(servers.calls(0, "set"), writes + 1);
}
