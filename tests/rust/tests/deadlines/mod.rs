//! No call takes longer than its timeout, whatever the network and the server do, and none is counted twice.

mod conditions;
mod several_stores;
mod stopped_server;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{AsyncLimiter, Builder, Limiter};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::lateness::{LatenessProbe, RecoveryControl};
use tidegate_tests::wait::wait_until;
const TIMEOUT: Duration = Duration::from_millis(150);
/// How late a call may be beyond its timeout.
const GRACE: Duration = Duration::from_millis(20);
const POLICY: &str = "fixed-window 1000000/hour";

/// One test at a time: the load of another test would count as time of a call.
static ALONE: Mutex<()> = Mutex::new(());

fn alone(trial: impl FnOnce()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    trial();
}

/// A call was in time, apart from the lateness of the machine. Three threads may be late: the one that has read the clock and begins
/// the call, the one that delivers the answer, and the one that waits for it.
#[track_caller]
fn in_time(took: Duration, timeout: Duration, lateness: Duration, what: &str) {
    assert!(
        took < timeout + GRACE + 3 * lateness,
        "{what}: a call took {took:?}, the machine was late by {lateness:?}"
    );
}

fn builder(port: u16) -> Builder {
    Limiter::builder().store(format!("redis://127.0.0.1:{port}/0")).timeout(TIMEOUT).bare()
}

/// Calls from several threads and many tasks for some time. None may be late. Returns the calls and those that succeeded.
fn hammer(blocking: &Limiter, tasks: &AsyncLimiter, span: Duration, what: &str) -> (u64, u64) {
    let probe = LatenessProbe::start();
    let start = Instant::now();
    let call = |limiter: &Limiter, number: usize| {
        let begun = Instant::now();
        let done = limiter.check(POLICY, &format!("k{}", number % 7)).is_ok();
        (begun.elapsed(), u64::from(done))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
                    while start.elapsed() < span {
                        let (took, fine) = call(blocking, thread + calls);
                        (worst, done, calls) = (worst.max(took), done + fine, calls + 1);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    (worst, done, calls as u64)
                })
            })
            .collect();
        let (worst_task, mut done, mut calls) = runtime().block_on(async {
            let workers = (0..50).map(|worker| {
                let limiter = tasks.clone();
                tokio::spawn(async move {
                    let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
                    while start.elapsed() < span {
                        let begun = Instant::now();
                        let fine = limiter.check(POLICY, &format!("k{}", (worker + calls) % 7)).await.is_ok();
                        worst = worst.max(begun.elapsed());
                        (done, calls) = (done + u64::from(fine), calls + 1);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    (worst, done, calls as u64)
                })
            });
            let (mut worst, mut done, mut calls) = (Duration::ZERO, 0, 0);
            for worker in workers.collect::<Vec<_>>() {
                let (one_worst, one_done, one_calls) = worker.await.expect("a worker ends");
                (worst, done, calls) = (worst.max(one_worst), done + one_done, calls + one_calls);
            }
            (worst, done, calls)
        });
        let mut worst_thread = Duration::ZERO;
        for thread in threads {
            let (one_worst, one_done, one_calls) = thread.join().expect("a thread ends");
            (worst_thread, done, calls) = (worst_thread.max(one_worst), done + one_done, calls + one_calls);
        }
        println!("{what:<24} {calls:>6} calls, {done:>6} answered, the longest {worst_thread:?} and {worst_task:?}");
        in_time(worst_thread.max(worst_task), TIMEOUT, probe.worst(), what);
        (calls, done)
    })
}

/// Waits until both limiters are answered again, for less than a second longer than a bare client.
fn recovers(port: u16, blocking: &Limiter, tasks: &AsyncLimiter, what: &str) {
    let control = RecoveryControl::start(port);
    until(&format!("{what}: the blocking limiter recovers"), || blocking.check(POLICY, "back").is_ok());
    let runtime = runtime();
    until(&format!("{what}: the async limiter recovers"), || runtime.block_on(tasks.check(POLICY, "back")).is_ok());
    control.judge(what);
}

#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(10), what, holds);
}
