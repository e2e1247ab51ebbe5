//! What a decision costs the Redis server: its own CPU time for each, folded and not, allowed and denied.
//!
//! The server counts its CPU time itself (INFO cpu), so another process on the machine disturbs little; the ways are
//! interleaved over several rounds and medians are shown.

use std::time::Duration;

use redis::Commands;
use tidegate::{AsyncLimiter, Limiter};
use tidegate_benches::server_cpu;
use tidegate_tests::servers::{Kind, Servers};

const IN_FLIGHT: usize = 256;
const CHECKS: usize = 60_000;
const ROUNDS: usize = 5;
const KEYS: usize = 10_000;

/// Policies that always allow, and one that always denies.
const POLICIES: [(&str, &str); 6] = [
    ("gcra", "gcra 1000000/s"),
    ("sliding-window", "1000000/minute"),
    ("denied", "gcra 1/year"),
    ("denied window", "1/year"),
    ("three O(1)", "gcra 1000000/s; fixed-window 1000000/hour; token-bucket 1000000/minute"),
    (
        "five O(1)",
        "gcra 1000000/s; fixed-window 1000000/hour; token-bucket 1000000/minute; calendar-window 10000000/day; \
         leaky-bucket 1000000/s",
    ),
];

async fn checks(limiter: &AsyncLimiter, policy: &str, keys: &[String]) {
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..IN_FLIGHT {
        let (limiter, policy) = (limiter.clone(), policy.to_owned());
        let mine: Vec<String> =
            (0..CHECKS / IN_FLIGHT).map(|turn| keys[(worker + turn * IN_FLIGHT) % keys.len()].clone()).collect();
        tasks.spawn_local(async move {
            for key in mine {
                limiter.check(&policy, &key).await.expect("a decision");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a worker ends");
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let servers = Servers::start(Kind::Single);
    let client = redis::Client::open(servers.url()).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{:07}", 1_000_000 + number)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limiter = |fold: usize| {
        let builder = Limiter::builder().store(servers.url()).timeout(Duration::from_secs(10)).fold(fold);
        builder.build_async().expect("a limiter")
    };
    let ways = [("pipelined", limiter(1)), ("folded", limiter(256))];
    println!("server CPU for each decision, {IN_FLIGHT} in flight, {KEYS} keys, median of {ROUNDS} rounds (µs)");
    println!("{:<16}{:>11}{:>9}{:>8}", "policy", "pipelined", "folded", "ratio");
    let mut first = 0.0;
    for (name, policy) in POLICIES {
        let _: () = connection.flushall().expect("FLUSHALL");
        let mut spent = [Vec::new(), Vec::new()];
        for round in 0..=ROUNDS {
            for (way, (_, limiter)) in ways.iter().enumerate() {
                let before = server_cpu(&mut connection);
                let local = tokio::task::LocalSet::new();
                runtime.block_on(local.run_until(checks(limiter, policy, &keys)));
                let cost = (server_cpu(&mut connection) - before) * 1e6 / CHECKS as f64;
                if round > 0 {
                    spent[way].push(cost);
                }
            }
        }
        let [pipelined, folded] = spent.map(median);
        if first == 0.0 {
            first = folded;
        }
        let ratio = folded / pipelined;
        println!("{name:<16}{pipelined:>11.2}{folded:>9.2}{ratio:>8.2}   {:.2} x of {}", folded / first, POLICIES[0].0);
    }
}
