//! Faults of a server and of the network under load: calls end in time, give the promised answer, and no check counts twice.

mod calls;
mod network;
mod recovery;
mod server;
mod unnoticed;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::{Limiter, OnStoreError};
use tidegate_tests::lateness::{BareClient, LatenessProbe};
use tidegate_tests::servers::Servers;
use tidegate_tests::threads;
use tidegate_tests::wait::wait_until;

use calls::{Lateness, LoadedLimiter, Percentiles, judge};

/// The timeout of a call …
const TIMEOUT: Duration = Duration::from_millis(250);
/// … how late it may be …
const GRACE: Duration = Duration::from_millis(20);
/// … and how much longer than it 99.9 % of the calls may take. Only the optimised program is held to that: in a debug
/// build the load alone keeps the machine busy.
const MOST: Duration = if cfg!(debug_assertions) { GRACE } else { Duration::from_millis(5) };
/// How long after the first answer to a bare client the server must answer all calls again.
const RECOVERY: Duration = Duration::from_secs(1);
/// Calls in flight at the same time, for each of the four choices.
const TASKS: usize = 40;
const THREADS: usize = 10;
/// Calls in flight of a limiter that a test loads alone.
const LOAD: usize = CHOICES.len() * (TASKS + THREADS);
const CHOICES: [OnStoreError; 4] = [OnStoreError::Raise, OnStoreError::Open, OnStoreError::Closed, OnStoreError::Local];
/// No test reaches the limit, and no test outlives the window.
const POLICY: &str = "fixed-window 1000000/day";

/// A fault: how it begins and how it ends.
struct Fault<'a> {
    name: &'a str,
    url: String,
    lasts: Duration,
    /// True if the server has lost its data afterwards.
    loses_data: bool,
    begin: Box<dyn FnMut() + 'a>,
    end: Box<dyn FnMut() + 'a>,
}

/// One fault at a time: the machine carries the load of one.
static ALONE: Mutex<()> = Mutex::new(());

/// The moments of a fault.
#[derive(Clone, Copy)]
struct Span {
    /// Before this the server was healthy.
    began: Instant,
    /// From here on the fault was complete.
    begun: Instant,
    /// From here on the server was healthy again.
    ended: Instant,
}

/// Puts load on four limiters, lets the fault happen, and judges every call.
fn survive(mut fault: Fault<'_>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let over = Arc::new(AtomicBool::new(false));
    let loaded: Vec<Arc<LoadedLimiter>> = CHOICES.iter().map(|choice| loaded_limiter(&fault.url, *choice)).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut threads = Vec::new();
    for loaded in &loaded {
        wait_until(Duration::from_secs(30), "the server answers", || loaded.limiter.ping().is_ok());
        for number in 0..TASKS {
            let (loaded, over, limiter) = (Arc::clone(loaded), Arc::clone(&over), loaded.limiter.to_async());
            runtime.spawn(async move {
                let pause = Duration::from_micros(4_000 + 100 * number as u64);
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let answer = limiter.check(POLICY, "key").await;
                    loaded.record(began, answer);
                    tokio::time::sleep(pause).await;
                }
            });
        }
        for _ in 0..THREADS {
            let (loaded, over) = (Arc::clone(loaded), Arc::clone(&over));
            threads.push(std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let answer = loaded.limiter.check(POLICY, "key");
                    loaded.record(began, answer);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }));
        }
    }
    // Measured under the same load, and often enough for a 99.9th percentile.
    let probe = LatenessProbe::start();
    let port = fault.url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok()).expect("a port");
    let client = BareClient::start(port, TIMEOUT);
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    (fault.begin)();
    let begun = Instant::now();
    std::thread::sleep(fault.lasts);
    (fault.end)();
    let ended = Instant::now();
    std::thread::sleep(client.first_answer(ended) + RECOVERY + Duration::from_millis(300));
    over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    drop(runtime);
    let (late, waits) = probe.all();
    let lateness = Lateness { late: Percentiles::of(late), waits };
    for loaded in &loaded {
        judge(&fault, loaded, Span { began, begun, ended }, &lateness, &client);
    }
    loaded.iter().for_each(|loaded| loaded.limiter.close());
    drop(loaded);
    let name = fault.name;
    drop(client);
    wait_until(Duration::from_secs(10), &format!("{name}: no thread is left"), || {
        threads::named("tidegate").is_empty()
    });
}

fn loaded_limiter(url: &str, choice: OnStoreError) -> Arc<LoadedLimiter> {
    let builder = Limiter::builder().store(url).timeout(TIMEOUT).on_store_error(choice);
    let limiter = builder.prefix(format!("t{choice:?}")).build().expect("a limiter");
    Arc::new(LoadedLimiter { choice, limiter, calls: Mutex::default() })
}

/// A fault of one server.
fn fault<'a>(
    name: &'a str,
    servers: &'a Servers,
    seconds: f64,
    begin: impl FnMut() + 'a,
    end: impl FnMut() + 'a,
) -> Fault<'a> {
    Fault {
        name,
        url: servers.url().to_owned(),
        lasts: Duration::from_secs_f64(seconds),
        loses_data: false,
        begin: Box::new(begin),
        end: Box::new(end),
    }
}
