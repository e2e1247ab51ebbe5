//! A denial is repeated without a call to the store, exactly as long as it holds.

use std::time::Duration;

use tidegate::host::{DENIAL_GENERATIONS, denial_generation};
use tidegate::{CheckOptions, Decision, ErrorKind, Limiter, Options, Policy, Source};
use tidegate_tests::servers::{Kind, Servers};

use super::{clock, scripts};

const MILLI: Duration = Duration::from_millis(1);
const PATIENT: Duration = Duration::from_secs(10);

fn denied(limiter: &Limiter, policy: &str, key: &str) -> Decision {
    for _ in 0..1_000 {
        let decision = limiter.check(policy, key).expect("a decision");
        if !decision.allowed() {
            return decision;
        }
    }
    panic!("{policy} denies nothing");
}

#[test]
fn a_hammered_key_costs_the_server_one_call_a_second() {
    let server = Servers::start(Kind::Single);
    let clock = clock();
    let limiter =
        Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock.clone()).build().expect("a limiter");
    let first = denied(&limiter, "5/hour", "k");
    assert_eq!(first.source(), Source::Store);
    let before = scripts(&server);
    for _ in 0..1_000 {
        for _ in 0..20 {
            let decision = limiter.check("5/hour", "k").expect("a decision");
            assert!(!decision.allowed());
            assert_eq!(decision.reset_at(), first.reset_at(), "the moment stays the same");
            assert_eq!(
                decision.at() + decision.retry_after().expect("a time"),
                first.at() + first.retry_after().expect("a time")
            );
        }
        clock.advance(10 * MILLI);
    }
    // Ten seconds. In the last tenth of each second one check renews the cached denial.
    let calls = scripts(&server) - before;
    assert!((9..=12).contains(&calls), "{calls} calls in ten seconds");
    assert_eq!(limiter.counters().deny_cache, 20_000 - calls);
}

#[tokio::test]
async fn a_thousand_at_once_cost_a_few_calls_and_then_none() {
    let server = Servers::start(Kind::Single);
    let builder = Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock());
    let limiter = builder.build_async().expect("a limiter");
    limiter.check("5/hour", "other").await.expect("a decision");
    for (round, most) in [(1, 12), (2, 0)] {
        let before = scripts(&server);
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.check("5/hour", "k").await });
        }
        let allowed = waiting.join_all().await.into_iter().filter(|done| done.as_ref().expect("a decision").allowed());
        assert_eq!(allowed.count(), if round == 1 { 5 } else { 0 });
        let calls = scripts(&server) - before;
        assert!(calls <= most, "{calls} calls in round {round}");
    }
}

#[test]
fn a_denial_lasts_until_its_moment_and_no_longer() {
    let server = Servers::start(Kind::Single);
    for policy in ["fixed-window 2/300ms", "gcra 1/250ms", "sliding-log 3/200ms", "2/400ms; 1/100ms"] {
        let clock = clock();
        let limiter = Limiter::builder()
            .store(server.url())
            .timeout(PATIENT)
            .prefix(policy)
            .clock(clock.clone())
            .build()
            .expect("a limiter");
        let decision = denied(&limiter, policy, "k");
        let wait = decision.retry_after().expect("a time");
        assert_eq!(decision.denied_for(), Some(wait), "{policy}");
        clock.advance(wait - Duration::from_micros(1));
        let still = limiter.check(policy, "k").expect("a decision");
        assert_eq!((still.allowed(), still.source()), (false, Source::DenyCache), "{policy}");
        assert_eq!(still.retry_after(), Some(Duration::from_micros(1)), "{policy}");
        assert_eq!(still.denied_for(), Some(Duration::from_micros(1)), "{policy}");
        clock.advance(Duration::from_micros(1));
        let decision = limiter.check(policy, "k").expect("a decision");
        assert!(decision.allowed() && decision.source() == Source::Store, "{policy}: {decision:?}");
        assert_eq!(decision.denied_for(), None);
    }
}

#[test]
fn it_lasts_no_longer_than_set_and_a_clock_that_goes_back_ends_it() {
    let server = Servers::start(Kind::Single);
    let clock = clock();
    let builder = Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock.clone());
    let limiter = builder.clone().deny_cache(300 * MILLI).build().expect("a limiter");
    assert_eq!(denied(&limiter, "1/hour", "k").denied_for(), Some(300 * MILLI));
    clock.advance(100 * MILLI);
    assert_eq!(limiter.check("1/hour", "k").expect("a decision").denied_for(), Some(200 * MILLI));
    clock.set(clock.now() - 101 * MILLI);
    assert_eq!(limiter.check("1/hour", "k").expect("a decision").source(), Source::Store);
    clock.advance(300 * MILLI);
    assert_eq!(limiter.check("1/hour", "k").expect("a decision").source(), Source::Store);
    // A cost that can never fit is denied for ever, and still the store is called again.
    let never = limiter.check_n("1/hour", "k", 2).expect("a decision");
    assert_eq!((never.retry_after(), never.denied_for()), (None, Some(300 * MILLI)));
    let off = builder.clone().deny_cache(Duration::ZERO).build().expect("a limiter");
    for _ in 0..3 {
        let decision = denied(&off, "1/hour", "k");
        assert_eq!((decision.source(), decision.denied_for()), (Source::Store, None));
    }
    assert_eq!(off.counters().deny_cache, 0);
    let refused = builder.deny_cache(Duration::from_secs(61)).build().expect_err("too long");
    assert_eq!(refused.kind(), ErrorKind::ConfigInvalid);
}

#[test]
fn a_change_by_this_limiter_is_noticed_at_once() {
    let server = Servers::start(Kind::Single);
    let clock = clock();
    let limiter =
        Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock.clone()).build().expect("a limiter");
    let policy = "2/hour";
    type Change = fn(&Limiter, &Decision);
    let changes: [(&str, Change, Option<bool>); 7] = [
        ("refund", |limiter, _| drop(limiter.refund("2/hour", "refund", 1).expect("a refund")), Some(true)),
        ("clear", |limiter, _| limiter.clear("2/hour", "clear").expect("a clear"), Some(true)),
        ("settle", |limiter, first| limiter.settle(first, 0).expect("a settlement"), Some(true)),
        ("charge", |limiter, _| drop(limiter.charge("2/hour", "charge", 1).expect("a charge")), Some(false)),
        (
            "block",
            |limiter, _| limiter.block("2/hour", "block", Duration::from_secs(9_000)).expect("a block"),
            Some(false),
        ),
        ("unblock", |limiter, _| limiter.unblock("2/hour", "unblock").expect("no block"), Some(false)),
        ("nothing", |_, _| {}, None),
    ];
    for (key, change, outcome) in changes {
        let first = limiter.check(policy, key).expect("a decision");
        denied(&limiter, policy, key);
        assert_eq!(limiter.check(policy, key).expect("a decision").source(), Source::DenyCache, "{key}");
        change(&limiter, &first);
        let after = limiter.check(policy, key).expect("a decision");
        assert_eq!(after.source() == Source::Store, outcome.is_some(), "{key}: {after:?}");
        assert_eq!(after.allowed(), outcome == Some(true), "{key}: {after:?}");
        if key == "block" {
            assert_eq!(after.retry_after(), Some(Duration::from_secs(9_000)));
        }
    }
    // A smaller cost that is admitted makes a larger one wait longer.
    limiter.check("gcra 1/s burst 10", "costs").expect("a decision");
    let large = limiter.check_n("gcra 1/s burst 10", "costs", 10).expect("a decision");
    limiter.check("gcra 1/s burst 10", "costs").expect("a decision");
    let later = limiter.check_n("gcra 1/s burst 10", "costs", 10).expect("a decision");
    assert_eq!(later.retry_after(), large.retry_after().map(|wait| wait + Duration::from_secs(1)));
    // A peek that finds room ends the cached denial.
    denied(&limiter, policy, "peek");
    let other = Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock).build().expect("another process");
    other.clear(policy, "peek").expect("a clear");
    assert!(!limiter.check(policy, "peek").expect("a decision").allowed(), "noticed later, as promised");
    assert!(limiter.peek(policy, "peek", 1).expect("a peek").allowed());
    assert!(limiter.check(policy, "peek").expect("a decision").allowed());
}

#[tokio::test]
async fn a_host_knows_which_denials_it_may_repeat() {
    let server = Servers::start(Kind::Single);
    let builder = Limiter::builder().store(server.url()).timeout(PATIENT).clock(clock());
    let limiter = builder.build_async().expect("a limiter");
    let mut seen = u32::MAX;
    let mut current = [0.0; DENIAL_GENERATIONS];
    limiter.check("1/hour", "k").await.expect("a decision");
    for change in ["refund", "charge", "peek", "clear_all"] {
        let denied = limiter.check("1/hour", "k").await.expect("a decision");
        limiter.copy_denial_generations(&mut seen, &mut current);
        let generation = denial_generation(&denied);
        let place = generation as usize % DENIAL_GENERATIONS;
        assert_eq!(current[place] as u32, generation, "before {change}");
        let again = limiter.check("1/hour", "k").await.expect("a decision");
        assert_eq!((again.source(), denial_generation(&again)), (Source::DenyCache, generation));
        match change {
            "refund" => drop(limiter.refund("1/hour", "k", 1).await.expect("a refund")),
            "charge" => drop(limiter.charge("1/hour", "k", 1).await.expect("a charge")),
            "peek" => drop(limiter.peek("1/hour", "k", 1).await.expect("a peek")),
            _ => limiter.clear_all().await.expect("it is cleared"),
        }
        limiter.copy_denial_generations(&mut seen, &mut current);
        // A peek that finds no room ends nothing.
        assert_eq!(current[place] as u32 == generation, change == "peek", "after {change}");
        limiter.check("1/hour", "k").await.expect("a decision");
    }
    let before = limiter.stats();
    limiter.count_repeated(&limiter.policy("1/hour").expect("a policy"), 7);
    let after = limiter.stats();
    let repeated = |stats: &tidegate::Stats| {
        let policy = &stats.policies["1/hour"];
        [policy.denied, policy.sources.deny_cache, stats.counters.deny_cache]
    };
    assert_eq!(repeated(&after), repeated(&before).map(|count| count + 7));
}

#[test]
fn a_changed_policy_calls_the_store_again() {
    let server = Servers::start(Kind::Single);
    let path = std::env::temp_dir().join(format!("tidegate-deny-{}.json", std::process::id()));
    let write = |notation: &str| {
        std::fs::write(&path, format!(r#"{{"policies": {{"p": "{notation}"}}}}"#)).expect("a file");
    };
    write("2/hour");
    let limiter = tidegate::Builder::from_file(&path).expect("a file").store(server.url()).timeout(PATIENT);
    let limiter = limiter.clock(clock()).build().expect("a limiter");
    denied(&limiter, "p", "k");
    write("2/hour");
    limiter.reload().expect("the same file");
    assert_eq!(limiter.check("p", "k").expect("a decision").source(), Source::DenyCache, "nothing has changed");
    write("3/hour");
    limiter.reload().expect("another file");
    assert!(limiter.check("p", "k").expect("a decision").allowed());
    drop(std::fs::remove_file(&path));
}

#[test]
fn policies_that_must_count_always_call_the_store() {
    let server = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(server.url()).timeout(PATIENT).build().expect("a limiter");
    let base = Policy::parse("1/hour").expect("a policy");
    let with = |options| Policy::new(base.limits().to_vec(), options).expect("a policy");
    let policies = [
        with(Options { count_denied: true, ..Options::default() }),
        with(Options { journal: 9, ..Options::default() }),
    ];
    for (index, policy) in policies.iter().enumerate() {
        let policy = policy.clone().named(format!("counts {index}")).expect("a name");
        limiter.check(&policy, "k").expect("a decision");
        let before = scripts(&server);
        for _ in 0..5 {
            let options = CheckOptions::default();
            let decision = limiter.check_with(&policy, "k", &options).expect("a decision");
            assert_eq!((decision.allowed(), decision.source()), (false, Source::Store));
            assert_eq!(decision.denied_for(), None);
        }
        assert_eq!(scripts(&server) - before, 5, "{policy}");
    }
    // The journal has every attempt.
    let policy = policies[1].clone().named("counts 1").expect("a name");
    assert_eq!(limiter.journal(&policy, "k").expect("a journal").len(), 6);
}

#[test]
fn a_waiting_caller_is_admitted_at_the_moment_it_was_told() {
    let server = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(server.url()).timeout(PATIENT).build().expect("a limiter");
    for policy in ["gcra 20/s burst 1", "fixed-window 2/100ms"] {
        denied(&limiter, policy, "k");
        let before = scripts(&server);
        for _ in 0..6 {
            assert!(limiter.acquire(policy, "k", 1, Some(PATIENT)).expect("a decision").allowed());
        }
        // Each caller checks once when its time has come, and at most once before.
        let calls = scripts(&server) - before;
        assert!(calls <= 14, "{calls} calls for six admissions of {policy}");
    }
}
