//! Calls as services have them. `benches/python/traffic.py` explains the arguments.

use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Limiter};
use tidegate_tests::random::Random;

use crate::arguments::Arguments;
use crate::{Measured, process_cpu};

const LENGTH: usize = 4_000;
/// No benchmark uses it up. With this count and those after it, the interval of a bucket has a fraction of a microsecond, so a policy that
/// is asked alone costs as much as each of many.
const HIGH: u64 = 1_000_001;

/// The policy and the key of a call.
type Call = (usize, String);

struct Traffic {
    tasks: u64,
    keys: u64,
    policies: u64,
    /// The sum of the weights up to each key. A key with more weight is asked for more often.
    sums: Vec<f64>,
    own: bool,
}

impl Traffic {
    fn new(arguments: &Arguments) -> Self {
        let (spread, keys) = (arguments.text("spread"), arguments.number("keys"));
        let weight = |number: u64| if spread == "zipf" { 1.0 / (number + 1) as f64 } else { 1.0 };
        let weights = (0..keys).map(weight);
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        let (tasks, policies) = (arguments.number("tasks"), arguments.number("policies"));
        Self { tasks, keys, policies, sums: sums.collect(), own: spread == "own" }
    }

    /// The calls of a caller, which it repeats again and again.
    fn calls(&self, caller: u64) -> Vec<Call> {
        let mut random = Random::new(caller);
        let all = self.sums[self.sums.len() - 1];
        let mut call = || {
            let number = if self.own {
                random.below(self.keys / self.tasks) * self.tasks + caller
            } else {
                let sought = random.below(1 << 52) as f64 / (1_u64 << 52) as f64 * all;
                self.sums.partition_point(|sum| *sum <= sought) as u64
            };
            (random.below(self.policies) as usize, format!("user:{number:07}"))
        };
        (0..LENGTH).map(|_| call()).collect()
    }
}

/// Keeps one check of each caller in flight until the time has passed. Returns the number of checks.
async fn checks(limiter: &AsyncLimiter, names: &[String], callers: &[Vec<Call>], span: Duration) -> u64 {
    let start = Instant::now();
    let work = |calls: &[Call]| {
        let (limiter, names, calls) = (limiter.clone(), names.to_vec(), calls.to_vec());
        async move {
            let mut done = 0;
            for (policy, key) in calls.iter().cycle().take_while(|_| start.elapsed() < span) {
                limiter.check(&*names[*policy], key).await.expect("a decision");
                done += 1;
            }
            done
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for calls in callers {
        tasks.spawn_local(work(calls));
    }
    tasks.join_all().await.into_iter().sum()
}

pub(crate) fn run(arguments: &Arguments) -> Measured {
    let traffic = Traffic::new(arguments);
    // A key that another contender has counted by another algorithm costs more, so the algorithm is a part of the name.
    let limits = arguments.text("algorithms").split(',').cycle().zip(HIGH..HIGH + traffic.policies);
    let names: Vec<String> = limits.clone().map(|(algorithm, count)| format!("{algorithm}-{count}")).collect();
    let builder = Limiter::builder().store(arguments.text("url")).timeout(Duration::from_secs(10));
    let limiter = names.iter().zip(limits).try_fold(builder, |builder, (name, (algorithm, count))| {
        builder.policy(name, format!("{algorithm} {count}/minute").as_str())
    });
    let limiter = limiter.and_then(|builder| builder.build_async()).expect("a limiter");
    let callers: Vec<Vec<Call>> = (0..traffic.tasks).map(|caller| traffic.calls(caller)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let warm = checks(&limiter, &names, &callers, arguments.seconds("warm")).await;
        let (began, used) = (Instant::now(), process_cpu());
        let done = checks(&limiter, &names, &callers, arguments.seconds("seconds")).await;
        let value = done as f64 / began.elapsed().as_secs_f64();
        let cpu = (process_cpu() - used) * 1e6 / done as f64;
        Measured { value, decisions: warm + done, beside: vec![("client CPU, µs", cpu)] }
    }))
}
