//! The cost of the layers around a shared store: repeated denials, a lost store, and the remembered usage of each key.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::bench::BenchSnapshots;
use tidegate::{Limiter, OnStoreError, Policy, Source};
use tidegate_tests::servers::{Kind, Servers};

fn denied(criterion: &mut Criterion) {
    let server = Servers::start(Kind::Single);
    let mut group = criterion.benchmark_group("denied again, on a live server");
    group.sample_size(30).measurement_time(Duration::from_secs(3));
    for (name, longest) in [("from the deny cache", 1), ("without it", 0)] {
        let limiter = Limiter::builder().store(server.url()).timeout(Duration::from_secs(5));
        let limiter = limiter.deny_cache(Duration::from_secs(longest)).build().expect("a limiter");
        for policy in ["1/hour", "gcra 1/hour; 20/day"] {
            limiter.check(policy, "user:1234567").expect("a decision");
            group.bench_function(format!("{name}, {policy}"), |bencher| {
                bencher.iter(|| limiter.check(policy, "user:1234567").expect("a decision").allowed());
            });
        }
    }
    group.finish();
}

fn lost(criterion: &mut Criterion) {
    let server = Servers::start(Kind::Single);
    let mut group = criterion.benchmark_group("the store is lost");
    group.sample_size(30).measurement_time(Duration::from_secs(2));
    server.kill(0);
    for choice in OnStoreError::ALL {
        let limiter = Limiter::builder().store(server.url()).on_store_error(choice).build().expect("a limiter");
        for _ in 0..3 {
            drop(limiter.check("1000000000/hour", "user:1234567"));
        }
        group.bench_function(choice.name(), |bencher| {
            bencher.iter(|| match limiter.check("1000000000/hour", "user:1234567") {
                Ok(decision) => assert_eq!(decision.source(), Source::Fallback),
                Err(_) => assert_eq!(choice, OnStoreError::Raise),
            });
        });
    }
    group.finish();
}

fn usage_snapshots(criterion: &mut Criterion) {
    let policy = Policy::parse("20/minute; 5/3s").expect("a policy");
    let mut group = criterion.benchmark_group("usage remembered of an answer");
    for count in [1, 1_000, 50_000, 1_000_000] {
        let keys: Vec<String> = (0..count).map(|number| format!("user:{:07}", number * 7_919 % count.max(2))).collect();
        let mut snapshots = BenchSnapshots::new(&policy);
        let mut at = 0;
        group.bench_function(format!("{count} keys"), |bencher| {
            bencher.iter(|| {
                snapshots.observe(&keys[at]);
                at = if at + 1 < keys.len() { at + 1 } else { 0 };
            });
        });
    }
    group.finish();
}

criterion_group!(benches, denied, lost, usage_snapshots);
criterion_main!(benches);
