//! Checks per second with many in flight on a live server, through the interface for event loops, alternately with and
//! without the layers around the store. It also prints the CPU time per check, which a busy machine affects less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate::host::{Call, CompletionQueue, Outcome, Wake};
use tidegate::{AsyncLimiter, Decision, Limiter, Result};
use tidegate_tests::servers::{Kind, Servers};

/// The length of one measurement.
const ROUND: Duration = Duration::from_millis(700);
const ROUNDS: usize = 6;

/// Counts answers. The calling thread waits until it is woken.
#[derive(Default)]
struct Loop {
    answered: AtomicU64,
    woken: (Mutex<bool>, Condvar),
}

impl Wake for Loop {
    fn wake(&self) {
        *self.woken.0.lock().expect("no panic") = true;
        self.woken.1.notify_one();
    }
}

impl CompletionQueue for Loop {
    fn deliver(&self, _: u64, outcome: Result<Outcome>) {
        drop(outcome.expect("an answer"));
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// The CPU seconds of this process so far.
fn cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// Checks per second, and microseconds of CPU for each.
fn run(limiter: &AsyncLimiter, policy: &str, in_flight: u64, keys: &[String]) -> (f64, f64) {
    let used = cpu();
    let completions = Arc::new(Loop::default());
    let to: Arc<dyn CompletionQueue> = Arc::<Loop>::clone(&completions);
    let call = Call::Plain(1);
    let (began, mut sent, mut immediate) = (Instant::now(), 0_u64, 0_u64);
    while began.elapsed() < ROUND {
        while sent - immediate < completions.answered.load(Ordering::Relaxed) + in_flight {
            let answer: Option<Result<Decision>> =
                limiter.post(policy, &keys[sent as usize % keys.len()], &call, sent, &to, None);
            immediate += u64::from(answer.is_some());
            sent += 1;
        }
        let mut woken = completions.woken.0.lock().expect("no panic");
        while !*woken {
            let (guard, late) = completions.woken.1.wait_timeout(woken, Duration::from_millis(50)).expect("no panic");
            woken = guard;
            if late.timed_out() {
                break;
            }
        }
        *woken = false;
    }
    let rate = sent as f64 / began.elapsed().as_secs_f64();
    while completions.answered.load(Ordering::Relaxed) < sent - immediate {
        std::thread::sleep(Duration::from_millis(1));
    }
    (rate, (cpu() - used) * 1e6 / sent as f64)
}

fn main() {
    let server = Servers::start(Kind::Single);
    let builder = || Limiter::builder().store(server.url()).timeout(Duration::from_secs(5));
    let bare = builder().bare().build_async().expect("a limiter");
    let layered = builder().build_async().expect("a limiter");
    let keys: Vec<String> = (0..10_000).map(|number| format!("user:{number:07}")).collect();
    println!("without and with the layers, the best of {ROUNDS} rounds each");
    for (name, policy) in
        [("allowed, one limit", "gcra 1000000000/s"), ("allowed, two limits", "1000000/minute; 100000/s")]
    {
        for in_flight in [1, 16, 64, 256] {
            let mut best = [(0.0_f64, f64::MAX); 2];
            for _ in 0..ROUNDS {
                for (limiter, best) in [&bare, &layered].into_iter().zip(&mut best) {
                    let (rate, cpu) = run(limiter, policy, in_flight, &keys);
                    *best = (best.0.max(rate), best.1.min(cpu));
                }
            }
            let [(bare, bare_cpu), (layered, layered_cpu)] = best;
            println!(
                "{name}, {in_flight} in flight: {bare:>7.0} and {layered:>7.0} a second, {bare_cpu:.2} and {layered_cpu:.2} µs of CPU"
            );
        }
    }
}
