//! One hot key of a policy, with and without a lease, on several threads of one process.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use tidegate::{Limiter, Options, Policy};

use crate::arguments::Arguments;
use crate::{Measured, process_cpu};

/// The checks between two looks at the clock.
const CHECKS: u64 = 128;

/// Checks on several threads until the time has passed or `most` are made. Returns the number of all and of the denied.
fn checks(threads: u64, span: Duration, most: u64, limiter: &Limiter, policy: &Policy, key: &str) -> (u64, u64) {
    let gate = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let work = || {
            let (mut done, mut denied) = (0, 0);
            gate.wait();
            let start = Instant::now();
            while done < most / threads && start.elapsed() < span {
                for _ in 0..CHECKS {
                    denied += u64::from(!limiter.check(policy, key).expect("a decision").allowed());
                }
                done += CHECKS;
            }
            (done, denied)
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("a worker ends"));
        ended.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    })
}

pub(crate) fn run(arguments: &Arguments) -> Measured {
    let limiter = Limiter::builder().store(arguments.text("url")).timeout(Duration::from_secs(5));
    let limiter = limiter.build().expect("a limiter");
    let lease = match arguments.text("lease") {
        "none" => None,
        text => Some(text.parse().expect("a lease")),
    };
    let notation = Policy::parse(arguments.text("policy")).expect("a policy");
    let limits: Vec<_> = notation.limits().to_vec();
    let policy = Policy::new(limits, Options { lease, ..Options::default() }).expect("a policy");
    // A new key for each process, so its window is unused.
    let key = format!("hot:{}", std::process::id());
    let (threads, most): (u64, u64) = (arguments.number("threads"), arguments.number("most"));
    let (warm, _) = checks(threads, arguments.seconds("warm"), most / 4, &limiter, &policy, &key);
    let (began, used) = (Instant::now(), process_cpu());
    let (done, denied) = checks(threads, arguments.seconds("seconds"), most - warm, &limiter, &policy, &key);
    let value = done as f64 / began.elapsed().as_secs_f64();
    let cpu = (process_cpu() - used) * 1e6 / done as f64;
    let beside = vec![("client CPU, µs", cpu), ("denied, %", denied as f64 * 100.0 / done as f64)];
    Measured { value, decisions: warm + done, beside }
}
