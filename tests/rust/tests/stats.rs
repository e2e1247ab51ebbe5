//! The counts of a limiter: by policy, outcome and source, without a store and with one.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tidegate::{
    CheckOptions, HoldAnswer, Limiter, MAX_COUNTED_POLICIES, ManualClock, OTHER_POLICIES, OnStoreError, Policy,
    PolicyStats, Stats, StoreCondition,
};
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::wait_until;

fn memory(policies: &[(&str, &str)]) -> Limiter {
    let builder = Limiter::builder().clock(Arc::new(ManualClock::new(Duration::from_secs(1_800_000_000))));
    let add = |builder: tidegate::Builder, (name, notation): &(&str, &str)| builder.policy(*name, notation);
    policies.iter().try_fold(builder, add).and_then(tidegate::Builder::build).expect("a limiter")
}

fn of(stats: &Stats, policy: &str) -> PolicyStats {
    stats.policies.get(policy).copied().unwrap_or_else(|| panic!("{policy} in {stats:?}"))
}

/// Allowed, denied, unavailable, near a limit, denied by a shadow policy.
fn numbers(stats: &PolicyStats) -> [u64; 5] {
    [stats.allowed, stats.denied, stats.unavailable, stats.near_limit, stats.shadow_denied]
}

#[test]
fn each_call_that_decides_counts_once() {
    let limiter = memory(&[("login", "fixed-window 10/minute"), ("work", "concurrency 1")]);
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [0; 5], "a policy with a name is there before its first call");
    for _ in 0..12 {
        limiter.check("login", "a").expect("a decision");
    }
    // The eighth check and the two after it find 80 % used.
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [10, 2, 0, 3, 0]);
    limiter.peek("login", "a", 1).expect("a decision");
    limiter.refund("login", "a", 9).expect("a decision");
    let decision = limiter.check("login", "b").expect("a decision");
    limiter.settle(&decision, 3).expect("settled");
    limiter.clear("login", "b").expect("cleared");
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [11, 2, 0, 3, 0]);
    limiter.charge("login", "b", 50).expect("a decision");
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [12, 2, 0, 4, 0]);
    let partial = CheckOptions { cost: 100, partial: true, ..CheckOptions::default() };
    assert_eq!(limiter.check_with("login", "c", &partial).expect("a decision").granted(), 10);
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [13, 2, 0, 5, 0]);
    limiter.check_all([("login", "d"), ("login", "c")]).expect("a decision");
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [14, 3, 0, 5, 0], "an entry each");
    assert!(!limiter.acquire("login", "c", 1, Some(Duration::ZERO)).expect("a decision").allowed());
    assert_eq!(numbers(&of(&limiter.stats(), "login")), [14, 4, 0, 5, 0], "its last decision");
    let held = limiter.hold("work", "a", 1).expect("a hold");
    assert!(matches!(limiter.hold("work", "a", 1).expect("an answer"), HoldAnswer::Denied(_)));
    drop(held);
    assert_eq!(numbers(&of(&limiter.stats(), "work")), [1, 1, 0, 1, 0], "renewing and releasing decide nothing");
    let stats = limiter.stats();
    assert_eq!((of(&stats, "login").sources.store, stats.store.calls), (18, 0), "memory is no shared store");
    assert!(stats.breaker.is_empty());
    assert_eq!(stats.store.latency.counts.len(), stats.store.latency.bounds.len() + 1);
}

#[test]
fn the_limit_that_binds_decides_what_is_near_and_a_shadow_policy_allows() {
    let limiter = memory(&[("two", "fixed-window 100/minute; fixed-window 5/hour")]);
    for _ in 0..6 {
        limiter.check("two", "a").expect("a decision");
    }
    assert_eq!(numbers(&of(&limiter.stats(), "two")), [5, 1, 0, 2, 0]);
    let options = tidegate::Options { shadow: true, ..tidegate::Options::default() };
    let limits = Policy::parse("fixed-window 2/minute").expect("a policy").limits().to_vec();
    let shadow = Policy::new(limits, options).and_then(|policy| policy.named("shadow")).expect("a policy");
    for _ in 0..5 {
        assert!(limiter.check(&shadow, "a").expect("a decision").allowed());
    }
    assert_eq!(numbers(&of(&limiter.stats(), "shadow")), [5, 0, 0, 1, 3]);
}

#[test]
fn a_policy_of_two_limiters_is_counted_by_each() {
    let policy = Policy::parse("100/minute").and_then(|policy| policy.named("shared")).expect("a policy");
    let (one, other) = (memory(&[]), memory(&[]));
    for round in 0..30 {
        one.check(&policy, "a").expect("a decision");
        if round % 3 == 0 {
            other.check(&policy, "a").expect("a decision");
        }
    }
    assert_eq!((of(&one.stats(), "shared").allowed, of(&other.stats(), "shared").allowed), (30, 10));
}

#[test]
fn policies_beyond_a_thousand_share_a_line() {
    let limiter = memory(&[("login", "5/minute")]);
    for number in 1..=2_000 {
        limiter.check(format!("{number}/minute"), "a").expect("a decision");
    }
    limiter.check("login", "a").expect("a decision");
    let stats = limiter.stats();
    assert_eq!(stats.policies.len(), MAX_COUNTED_POLICIES + 1);
    assert_eq!((of(&stats, "login").allowed, of(&stats, OTHER_POLICIES).allowed), (1, 1_001));
    assert_eq!(stats.policies.values().map(|policy| policy.allowed).sum::<u64>(), 2_001);
}

#[test]
fn many_threads_are_counted_exactly() {
    const THREADS: u64 = 40;
    const CALLS: u64 = 3_000;
    let limiter = memory(&[("one", "1000000/minute"), ("none", "0/minute")]);
    let start = Arc::new(Barrier::new(THREADS as usize));
    let run = |_| {
        let (limiter, start) = (limiter.clone(), Arc::clone(&start));
        thread::spawn(move || {
            start.wait();
            for _ in 0..CALLS {
                limiter.check("one", "a").expect("a decision");
                limiter.check("none", "a").expect("a decision");
            }
        })
    };
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    let stats = limiter.stats();
    let all = THREADS * CALLS;
    assert_eq!((of(&stats, "one").allowed, of(&stats, "none").denied), (all, all));
    assert_eq!(of(&stats, "one").sources.store, all);
}

#[test]
fn a_reload_keeps_the_counts_of_a_policy() {
    let path = std::env::temp_dir().join(format!("tidegate-stats-{}.yaml", std::process::id()));
    std::fs::write(&path, "policies: {login: 5/minute}").expect("written");
    let limiter = Limiter::from_file(&path).expect("a limiter");
    limiter.check("login", "a").expect("a decision");
    std::fs::write(&path, "policies: {login: {limits: [0/hour], shadow: true}, search: 1/s}").expect("written");
    limiter.reload().expect("reloaded");
    limiter.check("login", "a").expect("a decision");
    let stats = limiter.stats();
    assert_eq!((numbers(&of(&stats, "login")), numbers(&of(&stats, "search"))), ([2, 0, 0, 0, 1], [0; 5]));
    drop(std::fs::remove_file(&path));
}

#[test]
fn a_store_that_is_lost_shows_in_sources_breaker_and_latency() {
    let server = Servers::start(Kind::Single);
    let builder =
        Limiter::builder().store(server.url()).timeout(Duration::from_secs(10)).deny_cache(Duration::from_secs(60));
    let closed = builder.on_store_error(OnStoreError::Closed).policy("login", "fixed-window 5/hour").expect("a policy");
    let limiter = closed.build().expect("a limiter");
    wait_until(Duration::from_secs(10), "the server answers", || limiter.ping().is_ok());
    for _ in 0..8 {
        limiter.check("login", "a").expect("a decision");
    }
    let stats = limiter.stats();
    let login = of(&stats, "login");
    assert_eq!((numbers(&login), login.sources.store, login.sources.deny_cache), ([5, 3, 0, 2, 0], 6, 2));
    assert_eq!(
        (stats.store.calls, stats.store.latency.count, stats.store.batch_size.count),
        (6, 6, 6),
        "a ping is no call"
    );
    assert!(stats.store.latency.sum > 0.0);
    assert_eq!(stats.store.batch_size.counts[0], 6, "each was alone");
    assert_eq!(stats.breaker.values().collect::<Vec<_>>(), [&StoreCondition::Ok]);
    server.kill(0);
    for _ in 0..5 {
        assert!(limiter.check("login", "b").expect("a decision").unavailable());
    }
    let stats = limiter.stats();
    let login = of(&stats, "login");
    assert_eq!((login.unavailable, login.sources.fallback), (5, 5));
    assert_eq!(stats.breaker.values().collect::<Vec<_>>(), [&StoreCondition::Lost]);
    assert_eq!((stats.store.errors["store_unavailable"], stats.counters.withheld), (3, 2));
    assert_eq!(stats.store.calls, 9, "a call that is not sent has no latency");
}

#[test]
fn checks_that_travel_together_are_one_batch() {
    let server = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(server.url()).timeout(Duration::from_secs(5)).build_async();
    let limiter = limiter.expect("a limiter");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut checks = tokio::task::JoinSet::new();
        for number in 0..64 {
            let limiter = limiter.clone();
            checks.spawn(async move { limiter.check("5/minute", &format!("k{number}")).await.expect("a decision") });
        }
        assert_eq!(checks.join_all().await.len(), 64);
    });
    let stats = limiter.stats();
    assert_eq!((stats.policies.values().next().expect("one").allowed, stats.store.calls), (64, 64));
    let batches = stats.store.batch_size;
    assert!((batches.sum - 64.0).abs() < 0.5 && batches.count < 64, "{batches:?}");
}
