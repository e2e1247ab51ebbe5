//! The speed of one client on one Redis server: blocking on one thread, and async with many calls in flight.

use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Limiter};
use tidegate_tests::servers::{Kind, Servers};

const SPAN: Duration = Duration::from_millis(700);
const ROUNDS: usize = 5;
const KEYS: usize = 10_000;
const POLICY: &str = "gcra 1000000/s";

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn blocking(limiter: &Limiter, keys: &[String]) -> f64 {
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < SPAN {
        for _ in 0..16 {
            limiter.check(POLICY, &keys[done % keys.len()]).expect("a decision");
            done += 1;
        }
    }
    done as f64 / start.elapsed().as_secs_f64()
}

async fn awaiting(limiter: &AsyncLimiter, keys: &[String], in_flight: usize) -> f64 {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..in_flight {
        let (limiter, keys) = (limiter.clone(), keys.to_vec());
        tasks.spawn_local(async move {
            let mut done = 0;
            while start.elapsed() < SPAN {
                limiter.check(POLICY, &keys[(worker + done * in_flight) % keys.len()]).await.expect("a decision");
                done += 1;
            }
            done
        });
    }
    let mut done = 0;
    while let Some(more) = tasks.join_next().await {
        done += more.expect("a worker ends");
    }
    done as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let servers = Servers::start(Kind::Single);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{:07}", 1_000_000 + number)).collect();
    let builder = || Limiter::builder().store(servers.url()).timeout(Duration::from_secs(10)).bare();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("checks per second, median of {ROUNDS} rounds");
    let limiter = builder().build().expect("a limiter");
    println!(
        "{:<28}{:>10.0}",
        "blocking, one thread",
        median((0..ROUNDS).map(|_| blocking(&limiter, &keys)).collect())
    );
    for (name, fold) in [("folded", 256), ("pipelined", 1)] {
        let limiter = builder().fold(fold).build_async().expect("a limiter");
        for in_flight in [1, 16, 64, 256] {
            let round = |_| {
                let local = tokio::task::LocalSet::new();
                runtime.block_on(local.run_until(awaiting(&limiter, &keys, in_flight)))
            };
            let rate = median((0..ROUNDS).map(round).collect());
            println!("{:<28}{rate:>10.0}", format!("{name}, {in_flight} in flight"));
        }
    }
}
