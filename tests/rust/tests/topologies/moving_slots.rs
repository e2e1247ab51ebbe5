//! Slots that move under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tidegate::{Decision, Limiter, OnStoreError, Source};
use tidegate_tests::any_limiter::runtime;
use tidegate_tests::cluster::move_slot;
use tidegate_tests::servers::{Kind, Servers};
use tidegate_tests::wait::SetOnDrop;

use super::{POLICY, until, used};
/// Keys of each worker. Half of them have a log, which is three keys on the server.
const KEYS: u64 = 20;
const THREADS: u64 = 6;
/// Calls in flight at the same time, so that they fold.
const TASKS: u64 = 60;
/// Slots that move, each with keys in it.
const MOVES: usize = 60;

/// The policy and key of a worker's check, and how many units the key has used after it.
fn nth_check(worker: u64, number: u64) -> (&'static str, String, u64) {
    let policy = if number.is_multiple_of(2) { "sliding-log 1000000/hour" } else { POLICY };
    (policy, format!("{worker} k{}", number % KEYS), number / KEYS + 1)
}

#[test]
fn slots_that_move_cost_no_error() {
    let cluster = Servers::start(Kind::Cluster);
    let limiter = Limiter::builder().store(cluster.url()).timeout(Duration::from_secs(3));
    let limiter = limiter.on_store_error(OnStoreError::Raise).build().expect("a limiter");
    let (stop, checks) = (AtomicBool::new(false), AtomicU64::new(0));
    let heard = |answer: tidegate::Result<Decision>, units: u64| {
        let decision = answer.expect("no error while slots move");
        assert_eq!((decision.source(), used(&decision)), (Source::Store, units), "nothing is lost or counted twice");
        checks.fetch_add(1, Ordering::Relaxed);
    };
    let goes_on = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let (limiter, heard, goes_on, stop) = (&limiter, &heard, &goes_on, &stop);
        let mut workers = Vec::new();
        for worker in 0..THREADS {
            workers.push(scope.spawn(move || {
                let _stop = SetOnDrop(stop);
                for number in (0..).take_while(|_| goes_on()) {
                    let (policy, key, units) = nth_check(worker, number);
                    heard(limiter.check(policy, &key), units);
                }
            }));
        }
        workers.push(scope.spawn(move || {
            let _stop = SetOnDrop(stop);
            let tasks = limiter.to_async();
            let one = async |worker| {
                for number in (0..).take_while(|_| goes_on()) {
                    let (policy, key, units) = nth_check(worker, number);
                    heard(tasks.check(policy, &key).await, units);
                }
            };
            let mut all: Vec<_> = (0..TASKS).map(|task| Box::pin(one(THREADS + task))).collect();
            runtime().block_on(std::future::poll_fn(|cx| {
                all.retain_mut(|task| task.as_mut().poll(cx).is_pending());
                if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }));
        let _stop = SetOnDrop(stop);
        let keys = |node| {
            let count: u64 = redis::cmd("DBSIZE").query(&mut cluster.connection(node)).expect("a number");
            count
        };
        until("all keys are there", || (0..3).map(keys).sum::<u64>() >= (THREADS + TASKS) * KEYS);
        for from in (0..3).cycle().take(MOVES) {
            let mut connection = cluster.connection(from);
            let key: Vec<u8> = redis::cmd("RANDOMKEY").query(&mut connection).expect("a key");
            let slot = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut connection).expect("its slot");
            move_slot(&cluster, slot, from, (from + 1) % 3);
            if !goes_on() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault));
        }
    });
    println!("{MOVES} slots moved during {} checks, and no error", checks.into_inner());
}
