//! Checks on a live server by one async limiter, many in flight.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Limiter};
use tokio::runtime::Runtime;

use crate::arguments::Arguments;
use crate::{Measured, process_cpu};

/// The step from one key to the next, so that the checks do not follow the order of the keys.
const STRIDE: u64 = 7_919;

fn limiter(arguments: &Arguments) -> AsyncLimiter {
    let builder = Limiter::builder().store(arguments.text("url")).timeout(Duration::from_secs(10));
    builder.fold(arguments.number("fold")).build_async().expect("a limiter")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn key(number: u64) -> String {
    format!("user:{number:07}")
}

/// Keeps `in_flight` checks in flight until the time has passed. Returns the number of checks.
async fn checks(limiter: &AsyncLimiter, policy: &Rc<str>, keys: u64, in_flight: u64, span: Duration) -> u64 {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..in_flight {
        let (limiter, policy) = (limiter.clone(), Rc::clone(policy));
        tasks.spawn_local(async move {
            let mut done = 0;
            while start.elapsed() < span {
                let number = (worker + done * in_flight) * STRIDE % keys;
                limiter.check(&*policy, &key(number)).await.expect("a decision");
                done += 1;
            }
            done
        });
    }
    let mut done = 0;
    while let Some(more) = tasks.join_next().await {
        done += more.expect("a worker ends");
    }
    done
}

pub(crate) fn run(arguments: &Arguments) -> Measured {
    let limiter = limiter(arguments);
    let policy: Rc<str> = arguments.text("policy").into();
    let (keys, in_flight) = (arguments.number("keys"), arguments.number("in_flight"));
    let (runtime, local) = (runtime(), tokio::task::LocalSet::new());
    runtime.block_on(local.run_until(async {
        let warm = checks(&limiter, &policy, keys, in_flight, arguments.seconds("warm")).await;
        let (began, used) = (Instant::now(), process_cpu());
        let done = checks(&limiter, &policy, keys, in_flight, arguments.seconds("seconds")).await;
        let value = done as f64 / began.elapsed().as_secs_f64();
        let cpu = (process_cpu() - used) * 1e6 / done as f64;
        Measured { value, decisions: warm + done, beside: vec![("client CPU, µs", cpu)] }
    }))
}

/// Checks each key once.
pub(crate) fn fill(arguments: &Arguments) -> Measured {
    let limiter = limiter(arguments);
    let policy: Rc<str> = arguments.text("policy").into();
    let (keys, in_flight): (u64, u64) = (arguments.number("keys"), arguments.number("in_flight"));
    let (runtime, local) = (runtime(), tokio::task::LocalSet::new());
    let began = Instant::now();
    runtime.block_on(local.run_until(async {
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..in_flight {
            let (limiter, policy) = (limiter.clone(), Rc::clone(&policy));
            tasks.spawn_local(async move {
                for number in (worker..keys).step_by(in_flight as usize) {
                    limiter.check(&*policy, &key(number)).await.expect("a decision");
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a worker ends");
        }
    }));
    Measured { value: keys as f64 / began.elapsed().as_secs_f64(), decisions: keys, beside: Vec::new() }
}
