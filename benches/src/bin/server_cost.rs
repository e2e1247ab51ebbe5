//! The cost of a decision for the Redis server: its CPU time per decision, folded and not, allowed and denied.
//!
//! The server counts its CPU time itself (INFO cpu), so other processes on the machine affect it little. The variants alternate
//! over several rounds, and medians are shown.

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
        let own: Vec<String> =
            (0..CHECKS / IN_FLIGHT).map(|number| keys[(worker + number * IN_FLIGHT) % keys.len()].clone()).collect();
        tasks.spawn_local(async move {
            for key in own {
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

/// One variant: its name, its limiter, and connections to the servers whose CPU time counts.
struct Variant {
    name: &'static str,
    limiter: AsyncLimiter,
    servers: Vec<redis::Connection>,
}

impl Variant {
    fn new(name: &'static str, url: &str, fold: usize, servers: &[String]) -> Self {
        let builder = Limiter::builder().store(url).timeout(Duration::from_secs(10)).fold(fold).bare();
        let connect = |url: &String| redis::Client::open(url.as_str()).and_then(|client| client.get_connection());
        let servers = servers.iter().map(|url| connect(url).expect("a connection")).collect();
        Self { name, limiter: builder.build_async().expect("a limiter"), servers }
    }

    fn cpu(&mut self) -> f64 {
        self.servers.iter_mut().map(server_cpu).sum()
    }
}

fn main() {
    let (single, cluster) = (Servers::start(Kind::Single), Servers::start(Kind::Cluster));
    // The first three servers are the primaries. Replicas do the same work as those of a single server would.
    let primaries: Vec<String> = (0..3).map(|node| format!("redis://127.0.0.1:{}", cluster.port(node))).collect();
    let one = [single.url().to_owned()];
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user:{:07}", 1_000_000 + number)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut variants = [
        Variant::new("pipelined", single.url(), 1, &one),
        Variant::new("folded", single.url(), 256, &one),
        Variant::new("cluster", cluster.url(), 256, &primaries),
    ];
    println!("server CPU for each decision, {IN_FLIGHT} in flight, {KEYS} keys, median of {ROUNDS} rounds (µs)");
    println!(
        "{:<16}{:>11}{:>9}{:>8}{:>9}{:>8}",
        "policy", variants[0].name, variants[1].name, "ratio", variants[2].name, "ratio"
    );
    let mut first = 0.0;
    for (name, policy) in POLICIES {
        let mut spent = [Vec::new(), Vec::new(), Vec::new()];
        for variant in &mut variants {
            variant.servers.iter_mut().for_each(|server| server.flushall().expect("FLUSHALL"));
        }
        for round in 0..=ROUNDS {
            for (variant, spent) in variants.iter_mut().zip(&mut spent) {
                let before = variant.cpu();
                let local = tokio::task::LocalSet::new();
                runtime.block_on(local.run_until(checks(&variant.limiter, policy, &keys)));
                let cost = (variant.cpu() - before) * 1e6 / CHECKS as f64;
                if round > 0 {
                    spent.push(cost);
                }
            }
        }
        let [pipelined, folded, cluster] = spent.map(median);
        if first == 0.0 {
            first = folded;
        }
        println!(
            "{name:<16}{pipelined:>11.2}{folded:>9.2}{:>8.2}{cluster:>9.2}{:>8.2}   {:.2} x of {}",
            folded / pipelined,
            cluster / pipelined,
            folded / first,
            POLICIES[0].0
        );
    }
}
