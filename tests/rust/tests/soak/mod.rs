//! Random faults, one after the other, against an exact model. The usage of a key must be right to the unit, except for
//! checks that lost their answer.
//!
//! It runs for 8 seconds, or 20 with all tests, half of them on one server and half on a cluster. `TIDEGATE_SOAK` sets the seconds,
//! `TIDEGATE_SEED` the order of the faults.

mod cluster;
mod single;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::{Decision, Limiter, OnStoreError, Result, Source};
use tidegate_tests::budget::is_full;
use tidegate_tests::proxy::{Condition, Proxy};
use tidegate_tests::random::Random;
use tidegate_tests::servers::Servers;
use tidegate_tests::setting::setting;
use tidegate_tests::wait::{SetOnDrop, wait_until};

const TIMEOUT: Duration = Duration::from_millis(200);
const LIMIT: u64 = 40;
/// No run outlives the window.
const POLICY: &str = "fixed-window 40/day";
const KEYS: usize = 16;
const WORKERS: usize = 12;
/// After more unanswered checks than this a key proves too little.
const UNSURE: u64 = 3;

/// The checks that may be stored for a key: every answered one, and any of the others. The latter may run late, when
/// the network delivers the bytes that it held back.
#[derive(Debug, Clone, Copy, Default)]
struct ExpectedUsage {
    /// Part of the name of the key. A key that is full, or too unsure, is replaced by the next.
    generation: u64,
    answered: u64,
    unanswered: u64,
    /// The number of losses of data that this has taken into account.
    losses: u64,
}

impl ExpectedUsage {
    /// Takes one check into account, with the losses before and after it.
    fn record(&mut self, decision: &Result<Decision>, before: u64, after: u64) {
        // An odd number is a loss in progress: the check may have run before it or after it.
        if self.losses != before || before != after || !before.is_multiple_of(2) {
            *self = Self { generation: self.generation + 1, losses: after, ..Self::default() };
            return;
        }
        let stored = decision.as_ref().ok().filter(|decision| decision.source() != Source::Fallback);
        let Some(decision) = stored else {
            self.unanswered += 1;
            if self.unanswered > UNSURE {
                *self = Self { generation: self.generation + 1, losses: after, ..Self::default() };
            }
            return;
        };
        let used = LIMIT - decision.remaining();
        self.answered += u64::from(decision.allowed());
        let range = self.answered..=self.answered + self.unanswered;
        assert!(range.contains(&used), "{used} units are used, {self:?}");
        assert!(decision.allowed() || used == LIMIT, "denied with {used} used, {self:?}");
        if used == LIMIT {
            *self = Self { generation: self.generation + 1, losses: after, ..Self::default() };
        }
    }
}

/// All kinds of faults in random order, each once before any comes again, so that a short run has all of them.
struct ShuffledFaults {
    kinds: u64,
    left: Vec<u64>,
}

impl ShuffledFaults {
    fn draw(&mut self, random: &mut Random) -> u64 {
        if self.left.is_empty() {
            self.left = (0..self.kinds).collect();
        }
        let at = random.below(self.left.len() as u64) as usize;
        self.left.swap_remove(at)
    }
}

fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// The number of faults that a single server and a node of a cluster have in common.
const COMMON_FAULTS: u64 = 10;

/// A fault of a single server or of a node, without loss of data.
fn inject_fault(kind: u64, random: &mut Random, servers: &Servers, node: usize, proxy: &Proxy) -> &'static str {
    let length = 20 + random.below(900);
    let condition = |condition: Condition, name: &'static str| {
        proxy.set(condition);
        sleep(length);
        proxy.set(Condition::Healthy);
        name
    };
    match kind {
        0 => {
            servers.stop(node);
            sleep(length);
            servers.cont(node);
            "stopped"
        }
        1 => {
            for _ in 0..5 {
                drop(servers.command(node, &["SCRIPT", "FLUSH"]));
                sleep(length / 10);
            }
            "flushed"
        }
        2 => {
            drop(servers.command(node, &["CLIENT", "PAUSE", &length.to_string(), "WRITE"]));
            sleep(length);
            "paused"
        }
        3 => {
            drop(servers.command(node, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
            sleep(length / 10);
            "disconnected"
        }
        4 => condition(Condition::Silent, "silent"),
        5 => condition(Condition::Slow(Duration::from_millis(50 + length / 2)), "slow"),
        6 => condition(Condition::DropReplies, "swallowed"),
        7 => condition(Condition::CutReplies, "cut"),
        8 => condition(Condition::StallReplies, "stalled"),
        _ => condition(Condition::Refuse, "refused"),
    }
}

/// Counts losses of data: each when it begins and when it is over, since a check in between may have run before it or after
/// it.
#[derive(Default)]
struct Losses(AtomicU64);

impl Losses {
    fn during(&self, what: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        what();
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_secs(30), what, holds);
}

/// Checks from threads and tasks during one fault after the other, for half of the set time.
fn soak(url: &str, losses: &Losses, kinds: u64, mut inject: impl FnMut(u64, &mut Random) -> &'static str) {
    let seed = setting("TIDEGATE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let end =
        Instant::now() + Duration::from_secs(setting("TIDEGATE_SOAK").unwrap_or(if is_full() { 20 } else { 8 })) / 2;
    println!("seed {seed}");
    let (mut random, mut faults) = (Random::new(seed), ShuffledFaults { kinds, left: Vec::new() });
    let limiter = Limiter::builder().store(url).timeout(TIMEOUT).on_store_error(OnStoreError::Raise);
    let limiter = limiter.build().expect("a limiter");
    let over = AtomicBool::new(false);
    let (checks, stored) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&over);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (limiter, over, checks, stored) = (&limiter, &over, &checks, &stored);
                scope.spawn(move || {
                    // A worker that finds an error ends the run of all.
                    let _stop = SetOnDrop(over);
                    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                    let mut expected = [ExpectedUsage::default(); KEYS];
                    let mut random = Random::new(worker as u64);
                    let tasks = limiter.to_async();
                    while !over.load(Ordering::Relaxed) {
                        let number = random.below(KEYS as u64) as usize;
                        let key = format!("{worker}:{number}:{}", expected[number].generation);
                        let before = losses.now();
                        let decision = if worker % 2 == 0 {
                            limiter.check(POLICY, &key)
                        } else {
                            runtime.block_on(tasks.check(POLICY, &key))
                        };
                        checks.fetch_add(1, Ordering::Relaxed);
                        stored.fetch_add(u64::from(decision.is_ok()), Ordering::Relaxed);
                        expected[number].record(&decision, before, losses.now());
                        std::thread::sleep(Duration::from_micros(500));
                    }
                })
            })
            .collect();
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            println!("{}", inject(faults.draw(&mut random), &mut random));
            until("the store serves again", || limiter.ping().is_ok());
            sleep(random.below(600));
        }
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            // Panics with the message of the worker that found the error.
            worker.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault));
        }
    });
    let (checks, stored) = (checks.into_inner(), stored.into_inner());
    println!("{checks} checks, of which {stored} were answered");
    assert!(stored > 0, "no check was answered, so nothing was compared");
}
