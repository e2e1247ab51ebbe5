//! The parts of a check, each alone: the rules, the encoding of a command, and the script on a live server.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::bench::{BenchRule, encode};
use tidegate::{Algorithm, Limiter, Policy};
use tidegate_tests::servers::{Kind, Servers};

fn rules(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rule");
    for algorithm in Algorithm::ALL {
        let notation = match algorithm {
            Algorithm::Concurrency => "concurrency 100 ttl 1s".to_owned(),
            algorithm => format!("{algorithm} 100/s"),
        };
        let mut rule = BenchRule::new(&Policy::parse(&notation).expect("a policy"));
        let mut now = 1_790_000_000_000_000;
        group.bench_function(algorithm.name(), |bencher| {
            bencher.iter(|| {
                // About as many checks as the limit admits, so that both answers occur.
                now += 9_973;
                rule.check(now)
            });
        });
    }
    group.finish();
}

fn encoding(criterion: &mut Criterion) {
    let policy = Policy::parse("20/minute; 5/3s").expect("a policy");
    let mut group = criterion.benchmark_group("encode");
    for count in [1, 16, 256] {
        let keys: Vec<String> = (0..count).map(|number| format!("user:{number:07}")).collect();
        group.throughput(Throughput::Elements(count));
        group.bench_with_input(BenchmarkId::from_parameter(count), &keys, |bencher, keys| {
            bencher.iter(|| encode(&policy, keys));
        });
    }
    group.finish();
}

fn script(criterion: &mut Criterion) {
    let servers = Servers::start(Kind::Single);
    let limiter = Limiter::builder().store(servers.url()).timeout(Duration::from_secs(5));
    let limiter = limiter.build().expect("a limiter");
    let mut group = criterion.benchmark_group("blocking check on a live server");
    group.sample_size(30).measurement_time(Duration::from_secs(3));
    for (name, policy) in [("one limit", "gcra 1000000/s"), ("default", "1000000/minute"), ("denied", "0/minute")] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| limiter.check(policy, "user:1234567").expect("a decision").allowed());
        });
    }
    group.finish();
}

criterion_group!(benches, rules, encoding, script);
criterion_main!(benches);
