//! A keyed check of one limit in memory compared with governor's, in one run.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate::bench::BenchStore;
use tidegate::{Limiter, Policy};

const KEYS: [usize; 3] = [1, 1_000, 1_000_000];
const THREADS: [usize; 2] = [1, 8];

/// Whether a key is admitted.
type Check = Arc<dyn Fn(&String) -> bool + Send + Sync>;

fn keys(count: usize) -> Vec<String> {
    // Every key once, in an order that differs from their order in memory.
    (0..count).map(|number| format!("user:{:07}", number * 7_919 % count.max(2))).collect()
}

/// Runs `check` on several threads, each for its share of the rounds; the wall time of all.
fn spread(threads: usize, rounds: u64, keys: &Arc<Vec<String>>, check: &Check) -> Duration {
    let share = rounds / threads as u64 + 1;
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (keys, check) = (Arc::clone(keys), Arc::clone(check));
            std::thread::spawn(move || {
                let mut at = thread * keys.len() / threads;
                for _ in 0..share {
                    std::hint::black_box(check(&keys[at]));
                    at = if at + 1 < keys.len() { at + 1 } else { 0 };
                }
            })
        })
        .collect();
    let start = Instant::now();
    workers.into_iter().for_each(|worker| worker.join().expect("a worker ends"));
    start.elapsed()
}

fn keyed(criterion: &mut Criterion) {
    // The burst is so large that nothing is denied, and the period so long that every key stays in use: the steady state.
    let burst = NonZeroU32::new(1_000_000_000).expect("not zero");
    let quota = Quota::with_period(Duration::from_secs(1)).expect("not zero").allow_burst(burst);
    for threads in THREADS {
        for count in KEYS {
            let mut group = criterion.benchmark_group(format!("keyed check, {threads} threads, {count} keys"));
            group.throughput(Throughput::Elements(1));
            group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
            let keys = Arc::new(keys(count));
            let governor: Arc<DefaultKeyedRateLimiter<String>> = Arc::new(RateLimiter::dashmap(quota));
            let tidegate = Limiter::builder().store("memory://?max_keys=2000000").build().expect("a limiter");
            let policy = Policy::parse("gcra 1/s burst 1000000000").expect("a policy").named("p").expect("a name");
            let store = BenchStore::new(&policy, 2_000_000);
            let checks: [(&str, Check); 3] = [
                ("governor", Arc::new(move |key| governor.check_key(key).is_ok())),
                ("tidegate's store", Arc::new(move |key| store.check(key).expect("an answer"))),
                (
                    "tidegate's limiter, with a Decision",
                    Arc::new(move |key| tidegate.check(&policy, key).expect("a decision").allowed()),
                ),
            ];
            for (name, check) in checks {
                // Every key exists before the measurement.
                keys.iter().for_each(|key| {
                    check(key);
                });
                group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                    bencher.iter_custom(|rounds| spread(threads, rounds, &keys, &check));
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, keyed);
criterion_main!(benches);
