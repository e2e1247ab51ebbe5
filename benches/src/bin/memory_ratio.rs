//! A keyed check in memory compared with governor's: rounds of all candidates in alternation, and the median of their ratios,
//! because the speed of a noisy machine changes from minute to minute.

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate::bench::BenchStore;
use tidegate::{Limiter, Policy};

const ROUNDS: usize = 21;
/// The intended length of a round.
const ROUND: Duration = Duration::from_millis(50);
/// No benchmark uses it up.
const BURST: u32 = 1_000_000_000;

type Check = Box<dyn Fn(&String) -> bool + Send + Sync>;

/// The time for a number of checks on several threads, each of which starts at another key.
fn timed(threads: usize, checks: usize, from: usize, keys: &[String], check: &Check) -> Duration {
    let gate = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let gate = &gate;
                scope.spawn(move || {
                    let mut at = (from + thread * keys.len() / threads) % keys.len();
                    gate.wait();
                    for _ in 0..checks / threads + 1 {
                        std::hint::black_box(check(&keys[at]));
                        at = if at + 1 < keys.len() { at + 1 } else { 0 };
                    }
                })
            })
            .collect();
        let start = Instant::now();
        gate.wait();
        workers.into_iter().for_each(|worker| worker.join().expect("a worker ends"));
        start.elapsed()
    })
}

fn candidates() -> [(&'static str, Check); 4] {
    let burst = NonZeroU32::new(BURST).expect("more than none");
    let quota = Quota::with_period(Duration::from_secs(1)).expect("a second").allow_burst(burst);
    let governor: DefaultKeyedRateLimiter<String> = RateLimiter::dashmap(quota);
    let notation = format!("gcra 1/s burst {BURST}");
    let policy = Policy::parse(&notation).and_then(|policy| policy.named("p")).expect("a policy");
    let url = "memory://?max_keys=2000000";
    let store = BenchStore::new(&policy, 2_000_000);
    let limiter = Limiter::builder().store(url).build().expect("a limiter");
    let named = Limiter::builder().store(url).policy("p", &notation).and_then(|named| named.build());
    let named = named.expect("a limiter");
    [
        ("governor", Box::new(move |key| governor.check_key(key).is_ok())),
        ("store", Box::new(move |key| store.check(key).expect("an answer"))),
        ("limiter", Box::new(move |key| limiter.check(&policy, key).expect("an answer").allowed())),
        ("limiter, by name", Box::new(move |key| named.check("p", key).expect("an answer").allowed())),
    ]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("a keyed check of one limit, beside governor's (median of {ROUNDS} rounds in turn)");
    for threads in [1, 8] {
        for count in [1, 1_000, 1_000_000] {
            let keys: Vec<String> = (0..count).map(|number| format!("user:{number:07}")).collect();
            let checks = candidates();
            let sizes = checks.each_ref().map(|(_, check)| {
                timed(1, count, 0, &keys, check);
                let probe = 100_000;
                let took = timed(threads, probe, 0, &keys, check);
                (probe as f64 * ROUND.as_secs_f64() / took.as_secs_f64()) as usize
            });
            let mut nanos: [Vec<f64>; 4] = Default::default();
            for round in 0..ROUNDS {
                for step in 0..checks.len() {
                    // Forward and backward, so that no candidate always follows the same one.
                    let index = if round % 2 == 0 { step } else { checks.len() - 1 - step };
                    let from = round * sizes[index] / threads % keys.len();
                    let took = timed(threads, sizes[index], from, &keys, &checks[index].1);
                    nanos[index].push(took.as_secs_f64() * 1e9 / sizes[index] as f64);
                }
            }
            print!("{threads} threads, {count:>7} keys:");
            for (index, (name, _)) in checks.iter().enumerate() {
                let ratios = nanos[index].iter().zip(&nanos[0]).map(|(own, governors)| own / governors).collect();
                print!("  {name} {:.0} ns ({:.2} x)", median(nanos[index].clone()), median(ratios));
            }
            println!();
        }
    }
}
